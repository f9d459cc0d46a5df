"""`keepfast dlq`: letters have a state, and a replay sends what was chosen, once and in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from keepfast.cli import dlq_replay
from keepfast.desk import archives
from keepfast.desk.cases import CaseState
from keepfast.desk.facts import RunFact
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.broker_client import Client, NewRecord
from tests.support.command import KEEPFAST, environment, keepfast
from tests.support.letters import letter
from tests.support.waiting import wait_until

PARTITIONS = 2


class Place:
    """A source topic, letters about records of it, and a desk of its own."""

    def __init__(self, kafka: TopicAdmin, topic: TopicFactory, folder: Path) -> None:
        self.kafka, self.client, self.folder = kafka, Client(kafka), folder
        self.source = topic(partitions=PARTITIONS)
        self.dlq = topic(partitions=PARTITIONS, suffix=".dlq")
        self.desk = topic(partitions=1, suffix=".desk")
        self.environ = {
            "KAFKA_BROKERS": kafka.bootstrap,
            "KEEPFAST_DESK_TOPIC": self.desk,
            "XDG_CACHE_HOME": str(folder),
        }

    def file(self, count: int, **fields: Any) -> None:
        letters = [
            letter(
                **{
                    "topic": self.source,
                    "partition": n % PARTITIONS,
                    "offset": n,
                    "key": b"k%d" % (n % 10),
                    "value": b"%d" % n,
                    **fields,
                }
            )
            for n in range(count)
        ]
        file_letters(self.kafka, self.dlq, letters)

    def run(self, command: str, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = keepfast("dlq", command, *arguments, cwd=self.folder, **self.environ)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def states(self) -> dict[str, int]:
        return json.loads(self.run("causes", self.dlq, "--json").stdout)["states"]  # type: ignore[no-any-return]

    def sent(self, count: int) -> list[Any]:
        """What a reader of committed records sees, and no more of it."""
        ends = sum(self.client.edges(self.source, number)[1] for number in range(PARTITIONS))
        assert ends >= count
        return self.client.read(self.source, count, partitions=PARTITIONS)


@pytest.fixture
def place(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> Place:
    return Place(kafka, topic, tmp_path)


def test_only_what_was_chosen_is_sent(place: Place) -> None:
    place.file(6, error_type="TimeoutError", fingerprint="aaaa00000000")
    place.file(4, error_type="KeyError", fingerprint="bbbb00000000", group="other")
    planned = json.loads(place.run("replay", place.dlq, "--cause", "aaaa", "--dry-run", "--json").stdout)
    assert (planned["records"], planned["destinations"]) == (6, {place.source: 6})
    assert place.states() == {"open": 10}
    place.run("replay", place.dlq, "--cause", "aaaa", "--yes", "--why", "fixed in 1.2.4")
    messages = place.sent(6)
    assert sorted(int(message.value()) for message in messages) == list(range(6))
    for message in messages:
        [(name, value)] = message.headers()
        assert (name, value.split(b";")[0].rpartition(b"/")[0]) == (
            "keepfast-replay",
            b"payments.charge/%s/%d/%s" % (place.source.encode(), message.partition(), message.value()),
        )
    assert place.states() == {"open": 4, "replaying": 6}
    assert json.loads(place.run("causes", place.dlq, place.source, "--json").stdout)["topics"] == [
        place.dlq,
        place.source,
    ]
    again = place.run("replay", place.dlq, "--cause", "aaaa", "--yes", code=1)
    assert "6: replaying already" in again.stdout
    [entry] = [json.loads(line) for line in place.run("audit", place.dlq, "--json").stdout.splitlines()]
    assert (entry["action"], entry["count"], entry["why"]) == ("replay", 6, "fixed in 1.2.4")


@pytest.mark.parametrize("command", ["replay", "discard", "archive"])
def test_a_cause_that_does_not_exist_is_a_usage_error_that_names_those_that_do(place: Place, command: str) -> None:
    more = ("-o", "old.jsonl.gz") if command == "archive" else ()
    if command == "replay":
        empty = place.run(command, place.dlq, "--cause", "zzz", "--yes").stdout
        assert f"Nothing to replay.\n{place.dlq} has no letters." in empty
    place.file(2, error_type="TimeoutError", fingerprint="aaaa00000000")
    place.file(1, error_type="KeyError", fingerprint="bbbb00000000", group="other")
    done = place.run(command, place.dlq, "--cause", "AA", "--cause", "zzz", "--yes", *more, code=2)
    text = f"No cause in {place.dlq} begins with zzz. There are aaaa00 TimeoutError, bbbb00 KeyError."
    assert f"{text} To list them: keepfast dlq causes {place.dlq}" in done.stderr
    assert text in place.run("list", place.dlq, "--cause", "zzz").stdout
    assert place.states() == {"open": 3}
    other = place.run(command, place.dlq, "--error-type", "ValueError", "--yes", *more)
    assert f"No letter in {place.dlq} matches. There are: 3 open." in other.stdout


def test_two_groups_on_one_topic_of_letters_share_a_record_that_is_sent_once(place: Place) -> None:
    place.file(3, group="a")
    place.file(3, group="b")
    place.client.commit("c", place.source, 0)
    planned = json.loads(place.run("replay", place.dlq, "--all", "--dry-run", "--json").stdout)
    assert (planned["records"], planned["cases"], planned["groups"]) == (3, 6, ["a", "b"])
    assert (planned["other_readers"], planned["must_choose"]) == ({place.source: ["c"]}, True)
    refused = place.run("replay", place.dlq, "--all", "--yes", code=2)
    assert "--to topic" in refused.stderr
    sent = place.run("replay", place.dlq, "--all", "--yes", "--to", "topic")
    assert "3 records of" in sent.stdout
    assert "They are 6 cases of 2 groups; each record is sent once." in sent.stdout
    messages = place.sent(3)
    for message in messages:
        assert sorted(value.split(b"/")[0] for _, value in message.headers()) == [b"a", b"b"]
    assert place.states() == {"replaying": 6}


def test_marks_are_facts_with_who_and_why_and_can_be_taken_back(place: Place) -> None:
    place.file(5)
    place.run("discard", place.dlq, "--offsets", "0:0", "--yes", "--why", "test data")
    assert "needs a reason" in place.run("fail", place.dlq, "--all", "--yes", code=2).stderr
    place.run("fail", place.dlq, "--offsets", "1:0", "--yes", "--why", "refunded by hand")
    place.run("archive", place.dlq, "--offsets", "0:1", "--yes", "-o", "old.jsonl.gz")
    assert place.states() == {"open": 2, "discarded": 1, "permanently-failed": 1, "archived": 1}
    planned = json.loads(place.run("replay", place.dlq, "--all", "--dry-run", "--json").stdout)
    assert (planned["records"], sum(planned["excluded"].values())) == (2, 3)
    shown = place.run("show", place.dlq, "1:0").stdout
    assert "permanently-failed by" in shown
    assert "refunded by hand" in shown
    nothing = place.run("discard", place.dlq, "--error-type", "None", "--yes").stdout
    assert "There are: 1 archived, 1 discarded" in nothing
    place.run("restore", place.dlq, "--state", "discarded", "--dry-run")
    place.run("restore", place.dlq, "--all", "--yes")
    assert place.states() == {"open": 5}
    assert "There are: 5 open." in place.run("list", place.dlq, "--state", "discarded").stdout
    actions = [json.loads(line)["action"] for line in place.run("audit", place.dlq, "--json").stdout.splitlines()]
    assert actions == ["restore", "archive", "fail", "discard"]


def test_what_is_archived_can_be_purged_and_brought_back(place: Place) -> None:
    place.file(6)
    place.run("archive", place.dlq, "--offsets", "0:0-1", "--yes", "-o", "old.jsonl.gz")
    assert "Delete for good: 2 letters. Dry run" in place.run("purge", place.dlq, "--dry-run").stdout
    place.run("purge", place.dlq, "--yes")
    assert place.states() == {"open": 4}
    place.run("restore", place.dlq, "--archive", "old.jsonl.gz", "--yes")
    assert place.states() == {"open": 6}
    place.run("replay", place.dlq, "--all", "--yes")
    assert sorted(int(message.value()) for message in place.sent(6)) == list(range(6))


def test_an_archive_writes_nothing_that_this_desk_has_not_archived(place: Place, topic: TopicFactory) -> None:
    place.file(6)
    place.run("archive", place.dlq, "--offsets", "0:0-1", "--yes", "-o", "old.jsonl.gz")
    place.run("archive", place.dlq, "--offsets", "0:2", "--yes", "-o", "other.jsonl")
    place.run("purge", place.dlq, "--yes")
    ends = [place.client.edges(place.dlq, number)[1] for number in range(PARTITIONS)]
    victim, archived = topic(partitions=1), place.folder / "other.jsonl"
    fields = json.loads(archived.read_text())
    digest = fields.pop("sha256")
    for changes, problem in (({"topic": victim}, "Name that dead-letter topic"), ({"value": "eA=="}, "--sha256 HASH")):
        forged, forged_digest = archives._line_of(fields | changes, "")  # anyone can compute the hash
        (place.folder / "forged.jsonl").write_text(forged)
        refused = place.run("restore", place.dlq, "--archive", "forged.jsonl", "--yes", code=2)
        assert problem in refused.stderr
        wrong = place.run("restore", place.dlq, "--archive", "forged.jsonl", "--sha256", digest, "--yes", code=2)
        assert "Name that" in wrong.stderr or f"has the hash {forged_digest}, not {digest}" in wrong.stderr
    assert place.client.edges(victim, 0) == (0, 0)
    assert [place.client.edges(place.dlq, number)[1] for number in range(PARTITIONS)] == ends

    place.environ["KEEPFAST_DESK_TOPIC"] += ".elsewhere"  # as of a desk of other brokers
    assert digest in place.run("restore", place.dlq, "--archive", "other.jsonl", "--yes", code=2).stderr
    place.run("restore", place.dlq, "--archive", "other.jsonl", "--sha256", digest, "--yes")
    assert sum(place.client.edges(place.dlq, number)[1] for number in range(PARTITIONS)) == sum(ends) + 1


TRANSFORM = """
from dataclasses import replace

def double(record):
    if record.value == b"3":
        return None
    return replace(record, value=b'{"twice": %d}' % (2 * int(record.value)))
"""


def test_a_transform_changes_what_is_sent_and_shows_the_difference(place: Place) -> None:
    (place.folder / "repair.py").write_text(TRANSFORM)
    place.file(4)
    shown = place.run("replay", place.dlq, "--all", "--dry-run", "--transform", "repair:double", "--reveal").stdout
    assert '"twice": 0' in shown
    place.run("replay", place.dlq, "--all", "--yes", "--transform", "repair:double", code=1)
    assert sorted(message.value() for message in place.sent(3)) == [b'{"twice": %d}' % n for n in (0, 2, 4)]


FAILING = """
def repair(record):
    if record.value == b"%d":
        raise ValueError("no JSON")
    return record
"""


def test_a_transform_that_fails_names_the_letter_and_the_run_goes_on_when_it_is_corrected(place: Place) -> None:
    place.file(8)
    words = ["replay", place.dlq, "--all", "--yes", "--transform", "repair:repair"]
    (place.folder / "repair.py").write_text(FAILING % 2)
    for more in ((), ("--dry-run",)):
        refused = place.run(*words, *more, code=2)
        text = f"The transform failed at {place.dlq} 0:1: ValueError: no JSON (repair.py:4). Correct it, or"
        assert text in refused.stderr, refused.stderr
        assert "Nothing was sent." in refused.stderr
    assert place.states() == {"open": 8}
    assert "There were no replays" in place.run("runs", place.dlq).stdout
    (place.folder / "repair.py").write_text(FAILING % 7)
    stopped = place.run(*words, code=1)
    assert "Stopped: 0 of 8 records are sent." in stopped.stderr
    assert f"Reason: The transform failed at {place.dlq} 1:3: ValueError: no JSON (repair.py:4)." in stopped.stderr
    assert place.states() == {"open": 8}
    (place.folder / "repair.py").write_text(FAILING % 99)
    place.run(*stopped.stderr.split("To continue, without a duplicate: keepfast dlq ")[1].split()[:3])
    assert sorted(int(message.value()) for message in place.sent(8)) == list(range(8))


def test_one_record_is_edited_and_sent(place: Place) -> None:
    place.file(2)
    (place.folder / "value").write_bytes(b"repaired")
    place.run("edit", place.dlq, "1:0", "--value-file", "value", "--yes")
    [message] = place.sent(1)
    assert (message.value(), message.key(), message.partition()) == (b"repaired", b"k1", 1)
    assert place.states() == {"open": 1, "replaying": 1}


@pytest.mark.parametrize(("count", "rate"), [(600, 120), pytest.param(20_000, 2_000, marks=pytest.mark.long)])
def test_a_replay_that_is_killed_goes_on_without_a_duplicate_and_in_order(place: Place, count: int, rate: int) -> None:
    place.file(count)
    words = ["dlq", "replay", place.dlq, "--all", "--yes", "--rate", f"{rate}/s"]
    killed = 0
    run = ""
    for times in range(1, 4):
        with subprocess.Popen(
            [*KEEPFAST, *words],
            cwd=place.folder,
            env=environment(**place.environ),
            stdout=sys.stderr,
        ) as process:
            least = times * count // 5
            wait_until(partial(reached, place, least), f"{least} are sent")
            process.send_signal(signal.SIGKILL)
        killed += 1
        [fact] = [json.loads(line) for line in place.run("runs", place.dlq, "--json").stdout.splitlines()]
        run = fact["run"]
        assert fact["status"] == "running"
        assert 0 < fact["sent"] < count
        words = ["dlq", "resume", run, place.dlq]
        age(place, run)
    place.run("resume", run, place.dlq)
    found: dict[int, list[int]] = {}
    for message in place.sent(count):
        found.setdefault(message.partition(), []).append(int(message.value()))
    counts = Counter(value for values in found.values() for value in values)
    assert counts == dict.fromkeys(range(count), 1)
    assert all(values == sorted(values) for values in found.values())
    assert place.states() == {"replaying": count}
    assert killed == 3


def interrupted(place: Place, rate: str) -> list[str]:
    """Ctrl-C when some are sent. Returns the words of the command that continues."""
    with subprocess.Popen(
        [*KEEPFAST, "dlq", "replay", place.dlq, "--all", "--yes", "--rate", rate],
        cwd=place.folder,
        env=environment(**place.environ),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(partial(reached, place, 3), "some are sent")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    return errors.split("To continue, without a duplicate: keepfast dlq ")[1].split()


def test_ctrl_c_says_how_to_go_on_and_nothing_is_sent_twice(place: Place) -> None:
    place.file(60)
    words = interrupted(place, "10/s")
    assert place.states()["open"] > 0
    place.run(*words[:3])
    assert sorted(int(message.value()) for message in place.sent(60)) == list(range(60))
    assert place.states() == {"replaying": 60}


def test_a_resumed_run_leaves_out_and_names_what_another_run_has_sent_since(place: Place) -> None:
    place.file(30)
    words = interrupted(place, "5/s")
    left = place.states()["open"]
    assert 0 < left < 30
    place.run("replay", place.dlq, "--all", "--yes")
    done = place.run(*words[:3], code=1)
    assert f"Replayed {30 - left} records; all are confirmed." in done.stdout
    assert f"{left} left out:" in done.stderr
    assert "replaying since the run was planned" in done.stderr
    assert sorted(int(message.value()) for message in place.sent(30)) == list(range(30))
    assert f"The run {words[1]} is done." in place.run(*words[:3], code=2).stderr


@pytest.mark.long
def test_a_replay_whose_broker_restarts_goes_on_and_sends_each_record_once(tmp_path: Path) -> None:
    with KafkaBroker() as broker:

        def topic(*, partitions: int, suffix: str = "") -> str:
            return broker.create_topic(f"orders{suffix}", partitions=partitions)

        place = Place(broker, cast("TopicFactory", topic), tmp_path)
        place.file(80)
        with subprocess.Popen(
            [*KEEPFAST, "dlq", "replay", place.dlq, "--all", "--yes", "--rate", "10/s"],
            cwd=place.folder,
            env=environment(**place.environ),
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            wait_until(partial(reached, place, 3), "some are sent")
            broker.restart()
            _, errors = process.communicate(timeout=120)
        if process.returncode:  # it may as well have survived the restart
            words = errors.split("To continue, without a duplicate: keepfast dlq ")[1].split()
            age(place, words[1])
            place.run(*words[:3])
        assert sorted(int(message.value()) for message in place.sent(80)) == list(range(80))
        assert place.states() == {"replaying": 80}


def reached(place: Place, count: int) -> bool:
    return count <= sum(place.client.edges(place.source, number)[1] for number in range(PARTITIONS))


def age(place: Place, run: str) -> None:
    """As if the process had been dead for a minute."""
    [fact] = [json.loads(line) for line in place.run("runs", place.dlq, "--json").stdout.splitlines()]
    old = {name: fact[name] for name in ("topic", "by", "status", "total", "chunks", "sent", "policy") if name in fact}
    place.client.produce(
        place.desk, [NewRecord(json.dumps({**old, "at": 1, "updated": 1}).encode(), f"run/{run}".encode())]
    )


def test_records_whose_group_reports_nothing_count_as_processed_when_it_has_committed_past_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    states = {CaseState.RESOLVED: 2, CaseState.REPLAYING: 1}
    index = SimpleNamespace(succeeded=lambda _: 0, failed_again=lambda _: 0, results=lambda _: states)
    desk = cast(Any, SimpleNamespace(refresh=lambda: None, index=index))
    fact = RunFact(run="run-1", topic="t.dlq", by="me", at_ms=0, status="done", updated_ms=0, total=3, chunks=1, sent=3)
    assert dlq_replay._print_result(desk, fact, [], wait=True, json_=False) == 0
    assert "So far 2 processed, 0 failed again, 1 under way." in capsys.readouterr().out


def test_what_another_run_got_through_does_not_count_as_failed_again(capsys: pytest.CaptureFixture[str]) -> None:
    index = SimpleNamespace(
        succeeded=lambda _: 1, failed_again=lambda _: 2, results=lambda _: {CaseState.RESOLVED: 2, CaseState.OPEN: 1}
    )
    desk = cast(Any, SimpleNamespace(refresh=lambda: None, index=index))
    fact = RunFact(run="run-1", topic="t.dlq", by="me", at_ms=0, status="done", updated_ms=0, total=3, chunks=1, sent=3)
    assert dlq_replay._print_result(desk, fact, [], wait=True, json_=False) == 1
    assert "So far 2 processed, 1 failed again, 0 under way." in capsys.readouterr().out
