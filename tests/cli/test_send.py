"""`keepfast send` puts records into a topic and says where they are, or why they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keepfast.testing.loopback import free_ports
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.command import keepfast


def test_a_value_with_key_and_headers_arrives_as_it_is(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic(partitions=2)
    done = keepfast(
        *(
            "send",
            name,
            '{"id": "ä1"}',
            "--key",
            "k",
            "--header",
            "trace=a=b",
            "--header",
            "trace=",
            "--partition",
            "1",
        ),
        cwd=tmp_path,
        KAFKA_BROKERS=kafka.bootstrap,
    )
    assert (done.returncode, done.stdout) == (0, f"Sent 1 record to {name}: 1 in partition 1.\n"), done.stderr
    [record] = Client(kafka).read(name, 1, partitions=2)
    assert (record.partition(), record.key(), record.value()) == (1, b"k", '{"id": "ä1"}'.encode())
    assert record.headers() == [("trace", b"a=b"), ("trace", b"")]


def test_a_count_numbers_values_and_keys(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    done = keepfast(
        *("send", name, '{"n": {n}}', "--key", "k{n}", "--count", "250", "--json", "--brokers", kafka.bootstrap),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"topic": name, "sent": 250, "failed": 0, "partitions": {"0": 250}}
    records = Client(kafka).read(name, 250)
    assert [(one.key(), one.value()) for one in records] == [(b"k%d" % n, b'{"n": %d}' % n) for n in range(1, 251)]


def test_a_file_is_one_record_a_line_and_null_is_none(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    (tmp_path / "lines").write_bytes(b'{"a":1}\n\n\xff\xfe raw\r\nlast')
    for arguments in (("--file", "lines"), ("--null", "--key", "gone")):
        done = keepfast("send", name, *arguments, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
        assert done.returncode == 0, done.stderr
    records = Client(kafka).read(name, 4)
    assert [one.value() for one in records] == [b'{"a":1}', b"\xff\xfe raw", b"last", None]
    assert records[3].key() == b"gone"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ((), "Name exactly one of VALUE"),
        (("x", "--null"), "Name exactly one of VALUE"),
        (("x", "--header", "nothing"), "write NAME=VALUE"),
        (("x", "--partition", "7"), "there is no partition 7"),
        (("--file", "/dev/null", "--count", "2"), "--count repeats a VALUE"),
    ],
)
def test_what_cannot_be_sent_is_reported_in_a_sentence(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path, arguments: tuple[str, ...], printed: str
) -> None:
    done = keepfast("send", topic(), *arguments, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert (done.returncode, printed in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


def test_a_missing_topic_and_a_missing_broker_end_with_code_3(kafka: TopicAdmin, tmp_path: Path) -> None:
    missing = keepfast("send", "no.such.topic", "x", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert (missing.returncode, "There is no topic no.such.topic" in missing.stderr) == (3, True), missing.stderr
    assert f"--create --topic no.such.topic --partitions 4 --bootstrap-server {kafka.bootstrap};" in missing.stderr
    assert "--embedded" not in missing.stderr, "that is another broker"
    [port] = free_ports(1)
    away = keepfast("send", "t", "x", cwd=tmp_path, KAFKA_BROKERS=f"127.0.0.1:{port}")
    assert (away.returncode, "Could not reach Kafka" in away.stderr) == (3, True), away.stderr
