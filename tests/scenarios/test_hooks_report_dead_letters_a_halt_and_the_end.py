"""Hooks on a real broker: they get the error of a dead letter, a halt and the end of the drain, in one process and in
two, and a hook that hangs holds up neither records nor the end.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from keepfast import DeadLettered, DrainFinished, Halt, Halted, RecordEvent, Reject, RunFinished
from keepfast.core.events import Event
from keepfast.core.exit_codes import EXIT_HALTED
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord, numbered
from tests.support.command import running
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until


def test_a_hook_gets_the_error_of_a_dead_letter_and_the_end_of_the_drain(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    plain, awaited = list[Event](), list[Event]()

    @app.consumer(name)
    def work(value: bytes) -> None:
        if value == b"3":
            raise Reject("three is not a number")

    @app.on(DeadLettered, DrainFinished)
    def report(event: DeadLettered | DrainFinished) -> None:
        plain.append(event)

    @app.on(RecordEvent, DrainFinished, RunFinished)
    async def report_async(event: Event) -> None:
        awaited.append(event)

    client.produce(name, numbered(6))
    with RunningApp(app) as run:
        wait_until(lambda: client.is_committed(run.loop.plan.group, name, 6), "all are finished")
    [letter, end] = plain
    assert isinstance(letter, DeadLettered)
    assert (letter.topic, letter.offset, letter.letter_topic) == (name, 3, f"{name}.dlq")
    assert isinstance(letter.error, Reject)
    assert letter.error.__traceback__ is not None, "with its stack"
    assert isinstance(end, DrainFinished)
    finished = [place.offset for one in awaited if isinstance(one, RunFinished) for place in one.records]
    assert sorted(finished) == [0, 1, 2, 4, 5]
    others = [type(one).__name__ for one in awaited if not isinstance(one, RunFinished)]
    assert others == ["RecordFailed", "DeadLettered", "DrainFinished"]


def test_a_halt_is_reported_before_the_app_ends(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, app = topic(), app_for(kafka)
    seen = list[Halted]()

    @app.consumer(name)
    async def work(value: bytes) -> None:
        raise Halt("the ledger does not add up")

    @app.on(Halted)
    async def report(event: Halted) -> None:
        seen.append(event)

    Client(kafka).produce(name, [b"v"])
    with RunningApp(app, code=EXIT_HALTED) as run:
        wait_until(lambda: run.ended, "the app ends by itself")
    assert [(one.kind, one.topic, one.offset, type(one.error)) for one in seen] == [("halted", name, 0, Halt)]


def test_a_hook_that_hangs_holds_up_neither_records_nor_the_end(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    entered, go = threading.Event(), threading.Event()

    @app.consumer(name, storm_guard=False)
    def work(value: bytes) -> None:
        raise Reject("no")

    @app.on(DeadLettered)
    def hangs(event: DeadLettered) -> None:
        entered.set()
        go.wait(DEADLINE_S)

    client.produce(name, numbered(20))
    try:
        with RunningApp(app) as run:
            assert entered.wait(DEADLINE_S)
            wait_until(lambda: client.is_committed(run.loop.plan.group, name, 20), "all are finished")
        [line] = run.log.of("hooks_unfinished")
        assert line.fields["events"] == 20
        assert run.hooks.counts.dropped == 20
    finally:
        go.set()


APP = """
import os
from pathlib import Path
from keepfast import App, Assigned, DeadLettered, DrainFinished, Reject

app = App("shop")

@app.consumer("{topic}", group="{topic}.group")
def charge(value: bytes) -> None:
    raise Reject("no")

@app.on(Assigned, DeadLettered, DrainFinished)
def report(event: Assigned | DeadLettered | DrainFinished) -> None:
    with Path("seen").open("a") as file:
        print(os.getpid(), type(event).__name__, getattr(event, "partition", ""), file=file)
"""


def test_each_of_several_processes_calls_its_own_hooks(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    name, seen = topic(partitions=2), tmp_path / "seen"
    (tmp_path / "app.py").write_text(APP.format(topic=name))
    seen.touch()
    variables = {"KAFKA_BROKERS": kafka.bootstrap, "TMPDIR": str(tmp_path), "HEALTH_CHECK_ENABLED": "false"}

    def pids(event: str) -> set[str]:
        return {line.split()[0] for line in seen.read_text().splitlines() if line.split()[1] == event}

    with running(
        "run", "app:app", "--processes", "2", cwd=tmp_path, printed=tmp_path / "printed", **variables
    ) as parent:
        wait_until(lambda: len(pids("Assigned")) == 2, "both are members")
        Client(kafka).produce(name, [NewRecord(b"v", partition=number % 2) for number in range(4)])
        wait_until(lambda: seen.read_text().count("DeadLettered") == 4, "all letters are reported")
        parent.send_signal(signal.SIGTERM)
        assert parent.wait() == 0
    assert pids("DrainFinished") == pids("DeadLettered") == pids("Assigned")
