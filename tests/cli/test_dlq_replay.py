"""`keepfast dlq replay`: what was asked for and nothing else, and never a success that is none."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keepfast import Context, Reject, RetryTopics
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.broker_client import Client
from tests.support.command import KEEPFAST, environment, keepfast, running
from tests.support.letters import letter
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

COUNT = 10


class Place:
    """A source topic with two partitions, and letters about records of it."""

    def __init__(self, kafka: TopicAdmin, topic: TopicFactory, folder: Path) -> None:
        self.kafka, self.client, self.folder = kafka, Client(kafka), folder
        self.source = topic(partitions=2)
        self.dlq = topic(partitions=2, suffix=".dlq")

    def file(self, count: int = COUNT, **fields: Any) -> None:
        own = {"topic": self.source, "error_type": "TimeoutError", **fields}
        start = fields.pop("start", 0)
        own.pop("start", None)
        file_letters(
            self.kafka,
            self.dlq,
            [
                letter(**{"partition": n % 2, "offset": n, "key": b"k%d" % n, "value": b"%d" % n, **own})
                for n in range(start, start + count)
            ],
        )

    def replay(self, *arguments: str, topic: str | None = None) -> subprocess.CompletedProcess[str]:
        return keepfast("dlq", "replay", topic or self.dlq, *arguments, cwd=self.folder, **self.environ)

    @property
    def environ(self) -> dict[str, str]:
        return {"KAFKA_BROKERS": self.kafka.bootstrap}

    def sent(self, topic: str | None = None) -> int:
        name = topic or self.source
        return sum(self.client.edges(name, number)[1] for number in range(2))

    def values(self) -> list[int]:
        return sorted(int(message.value()) for message in self.client.read(self.source, self.sent(), partitions=2))


@pytest.fixture
def place(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> Place:
    return Place(kafka, topic, tmp_path)


def test_all_letters_go_back_to_where_they_came_from(place: Place) -> None:
    place.file()
    done = place.replay("--all", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} to {place.source}, to their original partitions" in done.stdout
    assert f"Replayed {COUNT} records; all are confirmed." in done.stdout
    for message in place.client.read(place.source, COUNT, partitions=2):
        number = int(message.value())
        assert (message.partition(), message.key()) == (number % 2, b"k%d" % number)
        identity = f"payments.charge/{place.source}/{number % 2}/{number}".encode()
        assert message.headers() == [("keepfast-replay-count", b"1"), ("keepfast-letter-id", identity)]
    assert place.sent(place.dlq) == COUNT, "the letters stay as they are"


def test_a_dry_run_says_what_would_be_done_and_does_nothing(place: Place) -> None:
    place.file()
    place.file(2, start=100, replay_count=3)
    place.file(1, start=200, topic="no.such.topic")
    done = place.replay("--all", "--dry-run", "--rate", "4/s")
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} records of {place.dlq} to send" in done.stdout
    assert "about 2 s at 4/s" in done.stdout
    assert "3 skipped:" in done.stdout
    assert "2: replayed 3 times already" in done.stdout
    assert "1: topic no.such.topic does not exist" in done.stdout
    assert "nothing was sent" in done.stdout
    assert place.sent() == 0


def test_only_what_was_chosen_is_sent(place: Place) -> None:
    place.file()
    place.file(2, start=20, error_type="KeyError", error_code="OTHER")
    assert place.replay("--error-type", "KeyError", "--yes").returncode == 0
    assert place.values() == [20, 21]
    assert place.replay("--offsets", "1:0-1", "--offsets", "0:4", "--yes").returncode == 0
    assert place.values() == [1, 3, 8, 20, 21]
    assert place.replay("--code", "OTHER", "--offsets", "0:5-", "--yes").returncode == 0
    assert place.values() == [1, 3, 8, 20, 20, 21]


def test_another_topic_can_be_named(place: Place, topic: TopicFactory) -> None:
    place.file()
    other = topic(partitions=2)
    done = place.replay("--all", "--yes", "--topic", other)
    assert done.returncode == 0, done.stderr
    assert "partitioned by key" in done.stdout
    assert (place.sent(), place.sent(other)) == (0, COUNT)


def test_other_groups_that_read_the_topic_are_named(place: Place) -> None:
    place.file()
    place.client.commit(f"billing-{place.source}", place.source, 0)
    place.client.commit("payments.charge", place.source, 0)
    done = place.replay("--all", "--dry-run")
    assert f"{place.source} is also read by billing-{place.source}: they get these records again" in done.stderr
    assert "payments.charge" not in done.stderr


def test_a_selection_must_be_named_and_confirmed(place: Place) -> None:
    place.file()
    for arguments, words in (
        ([], "Select letters with"),
        (["--all", "--code", "X"], "--all excludes filters"),
        (["--all"], "confirm with --yes"),
        (["--all", "--yes", "--rate", "0"], "rate must be"),
        (["--all", "--yes", "--rate", "fast"], "is not a rate"),
    ):
        done = place.replay(*arguments)
        assert (done.returncode, words in done.stderr) == (2, True), (arguments, done.stderr)
    assert place.replay("--all", "--yes", topic="no.such.topic").returncode == 3
    assert place.sent() == 0


@pytest.mark.parametrize(("answer", "code", "sent"), [(b"y\n", 0, COUNT), (b"n\n", 1, 0), (b"\n", 1, 0)])
def test_on_a_terminal_it_asks(place: Place, answer: bytes, code: int, sent: int) -> None:
    place.file()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*KEEPFAST, "dlq", "replay", place.dlq, "--all"],
        cwd=place.folder,
        env=environment(**place.environ),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        os.close(theirs)
        os.write(ours, answer)
        printed, _ = process.communicate(timeout=60)
    os.close(ours)
    assert (process.returncode, place.sent()) == (code, sent), printed
    assert b"Send 10 records?" in printed


def test_nothing_to_replay_is_no_failure_but_nothing_but_exclusions_is(place: Place) -> None:
    done = place.replay("--all", "--yes")
    assert (done.returncode, "Nothing to replay" in done.stdout) == (0, True)
    place.file(replay_count=3)
    done = place.replay("--code", "NO_SUCH", "--yes")
    assert (done.returncode, "codes: keepfast dlq list" in done.stderr) == (0, True)
    done = place.replay("--all", "--yes")
    assert (done.returncode, "10 skipped" in done.stdout, place.sent()) == (1, True, 0)
    assert place.replay("--all", "--yes", "--max-replays", "4").returncode == 0
    assert ("keepfast-replay-count", b"4") in place.client.read(place.source, COUNT, partitions=2)[0].headers()


def test_a_record_that_the_topic_refuses_is_reported_and_the_rest_goes_through(
    place: Place, topic: TopicFactory
) -> None:
    small = topic(config={"max.message.bytes": "2000"})
    file_letters(
        place.kafka,
        place.dlq,
        [letter(topic=small, partition=0, offset=n, value=os.urandom(3_000 if n == 1 else 10)) for n in range(4)],
        "headers",
    )
    done = place.replay("--all", "--yes")
    assert done.returncode == 1
    assert "3 of 4 records are confirmed" in done.stderr
    assert re.search(r"0:1: .*MSG_SIZE_TOO_LARGE", done.stderr)
    assert "Replayed" not in done.stdout
    assert place.client.edges(small)[1] == 3


def test_ctrl_c_ends_it_in_order_and_the_printed_command_does_the_rest(place: Place, tmp_path: Path) -> None:
    place.file(200)
    printed = tmp_path / "printed"
    arguments = ("dlq", "replay", place.dlq, "--all", "--yes", "--rate", "20/s")
    with running(*arguments, cwd=place.folder, printed=printed, **place.environ) as process:
        wait_until(lambda: place.sent() >= 5, "some are sent")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    text = printed.read_text()
    sent = place.sent()
    assert 5 <= sent < 200
    assert f"Stopped: {sent} of 200 records are confirmed." in text
    place.file(3, start=1_000)  # what comes later does not join
    command = next(line.strip() for line in text.splitlines() if line.strip().startswith("keepfast dlq replay"))
    words = shlex.split(command.replace("--rate 20/s", ""))
    done = keepfast(*words[1:], "--yes", cwd=place.folder, **place.environ)
    assert done.returncode == 0, done.stderr
    assert place.values() == list(range(200)), "each just once"


def test_a_replayed_record_that_dies_again_is_dead_lettered_once_more_with_its_count(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    name, client, healthy = topic(), Client(kafka), False
    app, done = app_for(kafka), list[bytes]()

    @app.consumer(name, dead_letter="{topic}.dlq")
    def work(value: bytes) -> None:
        if not healthy:
            raise Reject("not today", code="NOT_TODAY")
        done.append(value)

    client.produce(name, [b"one"])
    replay = ("dlq", "replay", f"{name}.dlq", "--code", "NOT_TODAY", "--yes")
    with RunningApp(app):
        for round_ in range(1, 4):
            wait_until(lambda end=round_: client.committed("scenario.work", name)[0] == end, "it is dead-lettered")  # type: ignore[misc]
            last = ("--offsets", f"0:{round_ - 1}")
            healthy = round_ == 3
            result = keepfast(*replay, *last, cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
            assert result.returncode == 0, result.stderr
        wait_until(lambda: done == [b"one"], "it is processed at last")
    found = client.read(name, 4)
    assert [dict(message.headers() or []).get("keepfast-replay-count") for message in found] == [None, b"1", b"2", b"3"]
    assert all(len(message.headers() or []) in (0, 2) for message in found), "nothing piles up"


def test_a_record_of_which_two_groups_have_a_letter_is_sent_once(place: Place) -> None:
    for group in ("billing", "shipping"):
        place.file(4, group=group)
    done = place.replay("--all", "--yes")
    assert done.returncode == 0, done.stderr
    assert f"4 records of {place.dlq} to send" in done.stdout
    assert "4 more letters contain the same records; each record is sent once." in done.stdout
    assert "Replayed 4 records; all are confirmed." in done.stdout
    assert place.values() == [0, 1, 2, 3]


def test_a_replay_to_the_group_reaches_that_group_alone(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name, client, healthy = topic(), Client(kafka), False
    app, done, others = app_for(kafka), list[tuple[bytes, int]](), list[bytes]()

    @app.consumer(
        name,
        dead_letter="{topic}.dlq",
        retry_topics=RetryTopics(delays=("1s",), allow_reorder=True),
    )
    def work(value: bytes, ctx: Context) -> None:
        if not healthy:
            raise Reject("not today", code="NOT_TODAY")
        done.append((value, ctx.offset))

    @app.consumer(name, dead_letter="{topic}.dlq")
    def other(value: bytes) -> None:
        others.append(value)
        raise Reject("never", code="NEVER")

    client.produce(name, [b"one"])
    replay = ("dlq", "replay", f"{name}.dlq", "--yes", "--to", "group")
    with RunningApp(app):
        wait_until(lambda: client.edges(f"{name}.dlq", 0)[1] == 2, "both groups have written their letter")
        refused = keepfast(*replay, "--all", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
        assert refused.returncode == 2, refused.stderr
        assert f"group scenario.other has no retry topics of {name}" in refused.stderr
        healthy = True
        result = keepfast(*replay, "--group", "scenario.work", cwd=tmp_path, KAFKA_BROKERS=kafka.bootstrap)
        assert result.returncode == 0, result.stderr
        assert f"1 to {name}.scenario.work.retry.1s, read only by their group" in result.stdout
        wait_until(lambda: done == [(b"one", 0)], "it is processed, as the record that it was")
    assert others == [b"one"], "the other group does not get it again"
    assert client.edges(name, 0)[1] == 1
