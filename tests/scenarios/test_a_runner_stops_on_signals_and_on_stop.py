"""P6, 002: SIGTERM finishes what is in flight and cuts waits short; hooks come in their order; exit codes say why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.member import APPS, ROOT
from tests.scenarios.runners import KINDS, Kind
from tests.support.broker_client import Client, NewRecord
from tests.support.waiting import DEADLINE_S, wait_until

BEGINNING = ["consumer_factory", "producer_factory", "health_server_start", "running True"]
END = ["running False", "health_server_stop", "cleanup_callback"]


class Process:
    """The runner of `apps/runner.py`, in a process of its own."""

    def __init__(self, kind: Kind, kafka: TopicAdmin, topic: str, folder: Path, **variables: str) -> None:
        self.topic = topic
        self.journal = folder / "journal"
        self.gate = folder / "gate"
        self.output = folder / "output"
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("KEEPFAST_", "KAFKA_"))},
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "RUNNER_JOURNAL": str(self.journal),
            "RUNNER_GATE": str(self.gate),
            "RUNNER_TOPIC": topic,
            "RUNNER_KIND": kind,
            "RUNNER_BROKER": kafka.bootstrap,
            **variables,
        }
        with self.output.open("wb") as output:
            command = [sys.executable, str(APPS / "runner.py")]
            self.process = subprocess.Popen(command, env=environ, cwd=folder, stdout=output, stderr=output)

    def notes(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def wait_for(self, note: str) -> None:
        wait_until(lambda: note in self.notes() or self.process.poll() is not None, note)
        assert note in self.notes(), self.output.read_text()

    def terminate(self) -> float:
        self.process.send_signal(signal.SIGTERM)
        return time.monotonic()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)


Start = Callable[..., Process]


@pytest.fixture
def start(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> Iterator[Start]:
    """`start(kind, {"n": 0}, …)`: these records are there, and a runner for them is on its way."""
    started: list[Process] = []

    def make(kind: Kind, *records: dict[str, Any], partitions: int = 1, **variables: str) -> Process:
        name = topic(partitions=partitions)
        Client(kafka).produce(name, [NewRecord(json.dumps(record).encode(), partition=0) for record in records])
        started.append(Process(kind, kafka, name, tmp_path, **variables))
        return started[-1]

    yield make
    for one in started:
        one.process.kill()
        one.process.wait(DEADLINE_S)
        sys.stdout.write(one.output.read_text())


def committed(kafka: TopicAdmin, process: Process) -> int | None:
    return Client(kafka).committed(f"group-of-{process.topic}", process.topic)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_sigterm_finishes_the_record_in_hand_commits_it_and_calls_the_hooks_of_the_end_in_order(
    kafka: TopicAdmin, start: Start, kind: Kind
) -> None:
    process = start(kind, {"n": 0}, {"n": 1, "do": "wait"}, {"n": 2})
    process.wait_for("start 1")
    process.terminate()
    wait_until(lambda: "drain_started" in process.output.read_text(), "it drains")
    assert process.process.poll() is None, "it waits for what is in flight"
    process.gate.touch()
    assert process.wait() == 0
    assert process.notes() == [*BEGINNING, "start 0", "end 0", "start 1", "end 1", *END]
    assert committed(kafka, process) == 2


@pytest.mark.timing
@pytest.mark.parametrize("kind", KINDS)
def test_sigterm_in_a_long_back_off_ends_it_at_once_and_leaves_the_record_to_the_next_owner(
    kafka: TopicAdmin, start: Start, kind: Kind
) -> None:
    process = start(kind, {"n": 0}, {"n": 1, "do": "fail"})
    process.wait_for("start 1")
    wait_until(lambda: committed(kafka, process) == 1, "the first record is committed")
    began = process.terminate()
    assert process.wait() == 0
    assert time.monotonic() - began < 3.0, "not the 30 s of the back-off"
    assert process.notes()[-len(END) :] == END
    assert committed(kafka, process) == 1


def test_a_handler_that_never_ends_does_not_keep_the_hooks_of_the_end_from_being_called(
    kafka: TopicAdmin, start: Start
) -> None:
    process = start("dict", {"n": 0, "do": "hang"}, RUNNER_TIMEOUT_S="2")
    process.wait_for("start 0")
    process.terminate()
    assert process.wait() == 5
    assert process.notes() == [*BEGINNING, "start 0", *END]
    assert committed(kafka, process) == 0, "only the crash guard's mark, at the start"


def test_sigterm_after_stop_is_the_first_signal_and_waits_for_the_record_in_hand(
    kafka: TopicAdmin, start: Start
) -> None:
    process = start("dict", {"n": 0, "do": "stop"}, {"n": 1})
    process.wait_for("stopped")
    wait_until(lambda: "drain_started" in process.output.read_text(), "it drains")
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.process.wait(1)
    process.gate.touch()
    assert process.wait() == 0
    assert process.notes() == [*BEGINNING, "start 0", "stopped", "end 0", *END]
    assert committed(kafka, process) == 1


def test_a_record_that_waits_for_its_turn_does_not_begin_after_sigterm(kafka: TopicAdmin, start: Start) -> None:
    process = start("dict", {"n": 0, "do": "reject"}, partitions=2)
    process.wait_for("dlq_publisher")
    client, group = Client(kafka), f"group-of-{process.topic}"
    client.produce(process.topic, [NewRecord(b'{"n": 1}', partition=1)])
    wait_until(lambda: client.committed(group, process.topic, 1)[1], "the crash guard lets the second record start")
    time.sleep(0.3)
    process.terminate()
    wait_until(lambda: "drain_started" in process.output.read_text(), "it drains")
    time.sleep(0.5)
    process.gate.touch()
    assert process.wait() == 0
    assert process.notes() == [*BEGINNING, "start 0", "dlq_publisher", "published", *END]
    assert client.committed(group, process.topic, 0)[0] == 1, "its letter is out"
    assert client.committed(group, process.topic, 1)[0] == 0, "it comes again"


def test_a_result_that_says_nothing_stops_the_process_with_code_4(kafka: TopicAdmin, start: Start) -> None:
    process = start("dict", {"n": 0, "do": "nonsense"})
    assert process.wait() == 4
    assert process.notes() == [*BEGINNING, "start 0", *END]
    assert committed(kafka, process) == 0, "only the crash guard's mark, at the start"
