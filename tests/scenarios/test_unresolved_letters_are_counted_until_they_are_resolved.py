"""`keepfast_dlq_unresolved` follows what is done about letters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from keepfast import App, Reject
from keepfast.desk import CaseFilter, Desk, DeskOptions, ReplayPolicy
from keepfast.desk import desk as desk_module
from keepfast.engine import counts
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.runners import Running
from tests.support.broker_client import Client, NewRecord
from tests.support.members import connection
from tests.support.waiting import wait_until

COUNT = 12


def unresolved(group: str) -> list[tuple[str, float]]:
    """Topic and value of each series of this group."""
    found = []
    for line in generate_latest().decode().splitlines():
        if line.startswith("keepfast_dlq_unresolved{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if labels["group"] == group:
                found.append((labels["topic"], float(line.rpartition(" ")[2])))
    return found


def test_unresolved_letters_are_counted_until_they_are_resolved(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "ASK_S", 1.0)
    for name in ("NOTICED_S", "LETTERS_NOTICED_S"):  # the consumer has known the desk's topic from its start
        monkeypatch.setattr(desk_module, name, 0.0)
    source, dlq, desk_topic = topic(partitions=2), topic(suffix=".dlq"), topic(suffix=".desk")
    group, broken = f"{source}.group", set(range(COUNT))

    def handle(order: dict[str, Any]) -> None:
        if order["n"] in broken:
            raise Reject("not yet")

    app = App(
        "counted",
        kafka={"brokers": kafka.bootstrap},
        desk={"topic": desk_topic, "count_every_s": 0.5},
        state={"dir": str(tmp_path)},
    )
    app.consumer(source, dead_letter=dlq, group=group, storm_guard=False)(handle)

    def counted(number: int, what: str) -> None:
        wait_until(lambda: unresolved(group) == [(source, float(number))], f"{what}: {number} unresolved")

    desk = Desk(connection(kafka.bootstrap), DeskOptions(topics=(dlq,), by="ada", desk_topic=desk_topic))

    def replay() -> None:
        desk.refresh()
        desk.replayer(desk.start(desk.plan(CaseFilter(), ReplayPolicy(to="topic")))).execute()

    def failed_again() -> bool:
        desk.refresh()
        return desk.index.failed_again(desk.runs()[0].run) == COUNT

    try:
        with app:
            counted(0, "nothing has failed")
            Client(kafka).produce(source, [NewRecord(json.dumps({"n": n}).encode()) for n in range(COUNT)])
            counted(COUNT, "all failed")
            desk.refresh()
            first, second, *_ = [case.id for case in desk.cases().cases]
            desk.mark([first], "discarded")
            counted(COUNT - 1, "discarded")
            desk.mark([second], "permanently-failed", why="load test")
            counted(COUNT - 2, "failed permanently")
            desk.mark([first, second], "restored")
            counted(COUNT, "restored")
            replay()
            wait_until(failed_again, "failed again")
            counted(COUNT, "failed again")  # no case is counted twice
            broken.clear()
            replay()
            counted(0, "all were processed")
    finally:
        desk.close()


def test_a_runner_counts_them_too(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "ASK_S", 1.0)
    source, dlq, desk_topic = topic(), topic(suffix=".dlq"), topic(suffix=".desk")

    def refuse(order: Any) -> None:
        raise Reject("never")

    settings = {"desk": {"topic": desk_topic, "count_every_s": 0.5}, "state": {"dir": str(tmp_path)}}
    Client(kafka).produce(source, [NewRecord(b"{}") for _ in range(3)])

    def counted(number: int) -> None:
        wait_until(lambda: unresolved(f"group-of-{source}") == [(source, float(number))], f"{number} unresolved")

    with Running("dict", kafka, source, process_message=refuse, dead_letter=dlq, settings=settings):
        counted(3)
        desk = Desk(connection(kafka.bootstrap), DeskOptions(topics=(dlq,), by="ada", desk_topic=desk_topic))
        try:
            desk.refresh()
            desk.mark([case.id for case in desk.cases(size=2).cases], "discarded")
        finally:
            desk.close()
        counted(1)
