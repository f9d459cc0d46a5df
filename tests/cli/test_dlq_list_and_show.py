"""`keepfast dlq list` and `show`: why records died, without their payload unless it is asked for."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest

from keepfast.deadletters.fingerprint import fingerprint
from keepfast.testing.loopback import free_ports
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.command import KEEPFAST, environment, keepfast
from tests.support.letters import letter

SECRET = "4111-1111-1111-1111"
TIMEOUT = fingerprint("TimeoutError", "gateway")

APP = """
from keepfast import App

app = App("shop")

@app.consumer({topic!r}, dead_letter="{{topic}}.dlq")
def charge(payment: dict) -> None: ...
"""


@pytest.fixture
def letters(kafka: TopicAdmin, topic: TopicFactory) -> str:
    """Six letters of two causes, in two formats and two partitions."""
    name = topic(partitions=2, suffix=".dlq")
    timeouts = [
        letter(
            partition=number % 2,
            offset=number,
            fingerprint=TIMEOUT,
            error_type="TimeoutError",
            error_class="TimeoutError",
            error_code="RETRIES_EXHAUSTED",
            error_message="gateway",
            failed_at_ms=1_700_000_000_000 + 60_000 * number,
        )
        for number in range(4)
    ]
    bad = [
        letter(
            partition=0,
            offset=number,
            key=b"key-" + SECRET.encode(),
            value=json.dumps({"card": SECRET, "amount": 5}).encode(),
            headers=(("trace", SECRET.encode()), (f"name {SECRET}", None)),
            fingerprint="ab" * 6,
            error_type="ValueError",
            error_message=f"bad card '{SECRET}' \x1b[31m\nof 17",
            error_code="SCHEMA_INVALID",
            reason=f"card '{SECRET}'",
            stack_trace=f'Traceback:\n  File "/app/shop.py", line 3, in charge\n    check()\nValueError: {SECRET}\n',
            group="other.group",
            failed_at_ms=1_700_001_000_000,
        )
        for number in (10, 11)
    ]
    file_letters(kafka, name, timeouts)
    file_letters(kafka, name, bad, "headers")
    return name


def test_causes_are_listed_the_most_frequent_first(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    done = keepfast("dlq", "list", letters, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert done.returncode == 0, done.stderr
    title, columns, first, second = done.stdout.splitlines()
    assert title == f"{letters}: 6 letters, 2 causes"
    assert columns.split() == ["COUNT", "CAUSE", "TYPE", "CODE", "FIRST", "SEEN", "LAST", "SEEN", "MESSAGE"]
    assert first.split() == [
        "4",
        TIMEOUT,
        "TimeoutError",
        "RETRIES_EXHAUSTED",
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:16:20Z",
        "gateway",
    ]
    assert second.split()[:4] == ["2", "ab" * 6, "ValueError", "SCHEMA_INVALID"]
    assert f"keepfast dlq show {letters} " in done.stderr
    assert SECRET not in done.stdout
    assert "\x1b" not in done.stdout


def test_causes_as_json(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    done = keepfast("dlq", "list", letters, "--json", "--brokers", kafka.bootstrap, cwd=tmp_path)
    reported = json.loads(done.stdout)
    assert (reported["topic"], reported["letters"], len(reported["causes"])) == (letters, 6, 2)
    assert reported["causes"][0]["codes"] == {"RETRIES_EXHAUSTED": 4}
    assert reported["causes"][1]["groups"] == {"other.group": 2}
    assert SECRET not in done.stdout


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (["--error-type", "TimeoutError"], 4),
        (["--error-type", "TimeoutError", "--error-type", "ValueError"], 6),
        (["--code", "SCHEMA_INVALID"], 2),
        (["--fingerprint", TIMEOUT[:5]], 4),
        (["--group", "other.group"], 2),
        (["--since", "2023-11-14T22:15:00Z"], 4),
        (["--until", "2023-11-14T22:14:20"], 1),
        (["--since", "2h"], 0),
        (["--offsets", "0:1-2"], 2),
        (["--offsets", "1:0", "--offsets", "0:3-"], 2),
        (["--offsets", "1:0", "--error-type", "ValueError"], 0),
    ],
    ids=str,
)
def test_letters_are_listed_and_chosen(
    kafka: TopicAdmin, letters: str, tmp_path: Path, filters: list[str], count: int
) -> None:
    done = keepfast(
        "dlq", "list", letters, "--letters", "--json", *filters, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == count
    assert SECRET not in done.stdout


def test_letters_as_a_table_and_no_more_than_the_limit(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    done = keepfast("dlq", "list", letters, "--letters", "--limit", "5", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert len(done.stdout.splitlines()) == 6
    assert "there are more" in done.stderr
    assert "orders.payment.v1 0:2" in done.stdout
    assert SECRET not in done.stdout


def test_an_app_knows_its_topics(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.format(topic=letters.removesuffix(".dlq")))
    done = keepfast("dlq", "list", "--app", "app:app", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert done.stdout.startswith(f"{letters}: 6 letters"), done.stderr


def test_where_nothing_is_dead_it_says_so(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    done = keepfast("dlq", "list", name, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert (done.returncode, done.stdout) == (0, f"{name} has no letters.\n")
    done = keepfast("dlq", "list", name, "--code", "X", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert (done.returncode, "No letter" in done.stdout) == (0, True)


def test_a_letter_is_shown_masked(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    done = keepfast("dlq", "show", letters, "0:2", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    assert SECRET not in printed
    assert "4111" not in printed
    assert "\x1b" not in printed
    for expected in (
        "orders.payment.v1 0:10",
        "bad card * \\x1b[#m of #",
        '"card": "<text of 19>"',
        '"amount": "<number>"',
        'File "/app/shop.py", line 3, in charge',
        "trace (19 bytes), <name of 24> null",
        "--reveal",
    ):
        assert expected in printed, printed


def test_a_letter_is_revealed_if_asked_for_and_still_escaped(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    done = keepfast("dlq", "show", letters, "0:2", "--reveal", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert f'{{"card": "{SECRET}", "amount": 5}}' in done.stdout
    assert f"trace: {SECRET}" in done.stdout
    assert f"key-{SECRET}" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\\x1b[31m" in done.stdout


def test_a_letter_as_json_holds_bytes_only_if_revealed(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    show = ("dlq", "show", letters, "0:2", "--json")
    masked = keepfast(*show, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
    assert SECRET not in masked.stdout
    assert json.loads(masked.stdout)["value_shape"] == {"card": "<text of 19>", "amount": "<number>"}
    revealed = json.loads(keepfast(*show, "--reveal", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap).stdout)
    assert b64decode(revealed["value"]) == json.dumps({"card": SECRET, "amount": 5}).encode()
    assert revealed["headers"][1] == [f"name {SECRET}", None]


def test_what_a_newcomer_gets_wrong_is_one_sentence(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    def printed(*arguments: str, **environ: str) -> tuple[int, str]:
        done = keepfast("dlq", *arguments, cwd=tmp_path, **{"KAFKA_BROKERS": kafka.bootstrap, **environ})
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    [port] = free_ports(1)
    for arguments, code, words in (
        (("list",), 2, "Name the dead-letter topic"),
        (("list", "no.such.topic"), 3, "There is no topic no.such.topic. `keepfast dlq list --app"),
        (("list", f"{letters}x"), 3, f"There is no topic {letters}x. Did you mean {letters}? "),
        (("list", letters, "--brokers", f"127.0.0.1:{port}"), 3, "Check the address"),
        (("list", letters, "--brokers", ","), 2, "--brokers is empty"),
        (("list", letters, "--since", "soon"), 2, "is not a time"),
        (("list", letters, "--offsets", "7"), 2, "PARTITION:FROM-TO"),
        (("list", "--app", "nope:app"), 2, "no module"),
        (("show", letters, "0:999"), 1, "holds offsets 0 to 3"),
        (("show", letters, "9:0"), 1, "no partition 9"),
        (("show", letters, "0:1-2"), 2, "Name one letter"),
    ):
        came, text = printed(*arguments)
        assert (came, words in text) == (code, True), (arguments, text)
    (tmp_path / "keepfast.toml").write_text('[consumers.charge]\ngroup = "g"\n')
    assert printed("list", letters)[0] == 2
    assert "--app" in printed("list", letters)[1]
    (tmp_path / "keepfast.toml").unlink()
    assert printed("list", letters, KEEPFAST_CONSUMERS_CHARGE_GROUP="g")[0] == 0


def test_a_reader_that_has_seen_enough_gets_no_complaint(kafka: TopicAdmin, letters: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [*KEEPFAST, "dlq", "list", letters, "--letters"]
    try:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(KAFKA_BROKERS=kafka.bootstrap),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
