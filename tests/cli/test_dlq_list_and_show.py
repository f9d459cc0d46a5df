"""`keepfast dlq causes`, `list` and `show`: why records died, without their payload unless it is asked for."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest

from keepfast.testing.loopback import free_ports
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.broker_client import Client, NewRecord
from tests.support.command import KEEPFAST, environment, keepfast
from tests.support.letters import letter

SECRET = "4111-1111-1111-1111"
TIMEOUT = "c0" * 6


class Filed:
    """Six letters of two causes, in two formats and two partitions."""

    def __init__(self, kafka: TopicAdmin, topic: TopicFactory, folder: Path) -> None:
        self.source, self.dlq = topic(partitions=2), topic(partitions=2, suffix=".dlq")
        self.folder = folder
        self.environ = {
            "KAFKA_BROKERS": kafka.bootstrap,
            "XDG_CACHE_HOME": str(folder),
            "KEEPFAST_DESK_TOPIC": topic(suffix=".desk"),
        }
        timeouts = [
            letter(
                topic=self.source,
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
                topic=self.source,
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
                stack_trace=f'  File "/app/shop.py", line 3, in charge\n    check()\nValueError: {SECRET}\n',
                group="other.group",
                failed_at_ms=1_700_001_000_000,
            )
            for number in (10, 11)
        ]
        file_letters(kafka, self.dlq, timeouts)
        file_letters(kafka, self.dlq, bad, "headers")

    def run(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return keepfast("dlq", *words, cwd=self.folder, **{**self.environ, **environ})


@pytest.fixture
def filed(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> Filed:
    return Filed(kafka, topic, tmp_path)


def test_causes_and_cases_are_listed_and_chosen_without_a_payload(filed: Filed) -> None:
    table = filed.run("causes", filed.dlq)
    assert table.returncode == 0, table.stderr
    assert table.stdout.index("TimeoutError") < table.stdout.index("ValueError")
    assert f"keepfast dlq show {filed.dlq} " in table.stderr
    reported = json.loads(filed.run("causes", filed.dlq, "--json").stdout)
    assert (reported["topics"], reported["unresolved"]) == ([filed.dlq], 6)
    assert [one["codes"] for one in reported["causes"]] == [{"RETRIES_EXHAUSTED": 4}, {"SCHEMA_INVALID": 2}]
    assert reported["causes"][1]["groups"] == {"other.group": 2}
    printed = table.stdout
    for filters, count in (
        (["--error-type", "TimeoutError"], 4),
        (["--error-type", "TimeoutError", "--error-type", "ValueError"], 6),
        (["--cause", TIMEOUT[:5], "--until", "2023-11-14T22:14:20"], 1),
        (["--since", "2h"], 0),
        (["--offsets", "1:0", "--offsets", "0:3-"], 2),
    ):
        done = filed.run("list", filed.dlq, "--json", *filters)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, count), (filters, done.stderr)
        printed += done.stdout
    limited = filed.run("list", filed.dlq, "--limit", "5")
    assert "The last 5 of 6" in limited.stderr
    for text in (printed, limited.stdout):
        assert SECRET not in text
        assert "\x1b" not in text


def test_a_letter_is_shown_masked_and_revealed_if_asked_for_and_escaped(filed: Filed) -> None:
    masked = filed.run("show", filed.dlq, "0:2")
    assert masked.returncode == 0, masked.stderr
    for absent in (SECRET, "4111", "\x1b"):
        assert absent not in masked.stdout
    for expected in ('"card": "<text of 19>"', '"amount": "<number>"', 'File "/app/shop.py", line 3', "--reveal"):
        assert expected in masked.stdout, masked.stdout
    as_json = filed.run("show", filed.dlq, "0:2", "--json").stdout
    assert SECRET not in as_json
    assert json.loads(as_json)["value_shape"] == {"card": "<text of 19>", "amount": "<number>"}
    revealed = filed.run("show", filed.dlq, "0:2", "--reveal").stdout
    for expected in (f'{{"card": "{SECRET}", "amount": 5}}', f"trace: {SECRET}", f"key-{SECRET}", "\\x1b[31m"):
        assert expected in revealed, revealed
    assert "\x1b" not in revealed
    fields = json.loads(filed.run("show", filed.dlq, "0:2", "--reveal", "--json").stdout)
    assert b64decode(fields["value"]) == json.dumps({"card": SECRET, "amount": 5}).encode()
    audited = [json.loads(line)["action"] for line in filed.run("audit", filed.dlq, "--json").stdout.splitlines()]
    assert audited == ["reveal", "reveal"]


def test_causes_of_a_topic_without_letters_say_so_and_suggest_no_broken_command(
    kafka: TopicAdmin, filed: Filed
) -> None:
    Client(kafka).produce(filed.source, [NewRecord(b"%d" % number) for number in range(3)])
    for more in ((), ("--json",)):
        done = filed.run("causes", filed.source, *more)
        warning = f"The format of 3 records of {filed.source} is unknown. Check that this is a dead-letter topic."
        assert (done.returncode, warning in done.stderr) == (0, True), done.stderr
        assert "--cause" not in done.stderr
    assert f"keepfast dlq show {filed.source} " in filed.run("causes", filed.source).stderr
    assert "Check that" not in filed.run("causes", filed.dlq).stderr


def test_what_a_newcomer_gets_wrong_is_one_sentence(filed: Filed) -> None:
    [port] = free_ports(1)
    for words, code, part in (
        (("list",), 2, "Name the dead-letter topic"),
        (("list", f"{filed.dlq}x"), 3, f"There is no topic {filed.dlq}x. Did you mean {filed.dlq}? "),
        (("list", filed.dlq, "--brokers", f"127.0.0.1:{port}"), 3, "Check the address"),
        (("list", filed.dlq, "--since", "soon"), 2, "is not a time"),
        (("list", filed.dlq, "--offsets", "7"), 2, "PARTITION:FROM-TO"),
        (("show", filed.dlq, "0:999"), 1, "holds offsets 0 to 3"),
        (("show", filed.dlq, "9:0"), 1, "no partition 9"),
        (("show", filed.dlq, "spool:9"), 1, "in the spool"),
        (("show", filed.dlq, "0:1-2"), 2, "Name one letter"),
        (("edit", filed.dlq, "0:1-2", "--yes"), 2, "Name one letter"),
        (("edit", filed.dlq, "0:999", "--yes"), 1, "no letter at 0:999"),
        (("replay", filed.dlq, "--yes"), 2, "--all"),
        (("replay", filed.dlq, "--all"), 2, "--yes"),
        (("replay", filed.dlq, "--all", "--yes", "--rate", "0"), 2, "rate"),
    ):
        done = filed.run(*words)
        assert "Traceback" not in done.stderr
        assert (done.returncode, part in done.stderr) == (code, True), (words, done.stderr)


def test_a_reader_that_has_seen_enough_gets_no_complaint(filed: Filed) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*KEEPFAST, "dlq", "list", filed.dlq],
            cwd=filed.folder,
            env=environment(**filed.environ),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(("answer", "code", "sent"), [(b"y\n", 0, 6), (b"\n", 1, 0)])
def test_on_a_terminal_a_replay_asks(kafka: TopicAdmin, filed: Filed, answer: bytes, code: int, sent: int) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*KEEPFAST, "dlq", "replay", filed.dlq, "--all", "--to", "topic"],
        cwd=filed.folder,
        env=environment(**filed.environ),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        os.close(theirs)
        os.write(ours, answer)
        printed, _ = process.communicate(timeout=60)
    os.close(ours)
    count = len(Client(kafka).read(filed.source, sent, partitions=2)) if sent else 0
    assert (process.returncode, count) == (code, sent), printed
    assert b"6 records" in printed
