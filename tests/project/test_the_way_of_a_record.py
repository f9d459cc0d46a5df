"""How many files a record passes: counted from a trace on a real broker, and listed in docs/design.md.

A file counts if one of its frames holds the record, its run, its partition or its commit position between leaving the
client and the confirmation of its commit. Frames that hold a partition when
nothing is in flight, too, are housekeeping.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import confluent_kafka

import keepfast
from keepfast import App, Reject
from keepfast.core.ports import CommitOutcome, Position
from keepfast.core.records import Outgoing, Record
from keepfast.core.runs import FailedRecord, Partition, Run
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp
from tests.support.waiting import wait_until

PACKAGE = Path(keepfast.__file__).parent
DESIGN = PACKAGE.parents[1] / "docs" / "design.md"
GROUP = "scenario.work"
IN_HAND = (confluent_kafka.Message, Record, Run, FailedRecord, Position, CommitOutcome, Outgoing)
MAX_FILES, MAX_MORE_TO_A_LETTER = 15, 10
IDLE_S = 1.5


class Trace:
    """Which files have a frame with something of a record in it. `near`: only with a partition."""

    def __init__(self) -> None:
        self.armed = False
        self.in_hand: set[str] = set()
        self.near: set[str] = set()

    def profile(self, frame: FrameType, event: str, value: object) -> None:
        if not self.armed or event != "return":
            return
        name = frame.f_code.co_filename
        if not name.startswith(str(PACKAGE)):
            return
        found = [*frame.f_locals.values(), value]
        file = str(Path(name).relative_to(PACKAGE))
        if any(_holds(one, IN_HAND) for one in found):
            self.in_hand.add(file)
        elif any(_holds(one, (Partition,)) for one in found):
            self.near.add(file)


def _holds(value: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, kinds):
        return True
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], kinds)


@contextmanager
def traced() -> Iterator[Trace]:
    """Every thread that starts within it."""
    trace = Trace()
    before = sys.getprofile()
    threading.setprofile(trace.profile)
    try:
        yield trace
    finally:
        threading.setprofile(before)


def ways(kafka: TopicAdmin, topic: TopicFactory) -> tuple[set[str], set[str]]:
    """The files on the way of a record that succeeds, and those of one that is dead-lettered."""
    name, client = topic(), Client(kafka)
    # No desk: replayed records, which report what became of them, pass two files more.
    app = App("scenario", kafka={"brokers": kafka.bootstrap}, desk={"topic": f"{name}.desk"})

    @app.consumer(name, name="work", dead_letter="{topic}.dlq")
    def work(value: str) -> None:
        if value == "bad":
            raise Reject("no")

    def one(trace: Trace, value: bytes, committed: int) -> set[str]:
        trace.in_hand, trace.near = set(), set()
        client.produce(name, [NewRecord(value)])
        wait_until(lambda: client.committed(GROUP, name)[0] == committed, "it is committed")
        return trace.in_hand | (trace.near - idle)

    idle = set[str]()
    with traced() as trace, RunningApp(app) as running:
        running.wait_assigned()
        one(trace, b"first", 1)
        trace.armed = True
        threading.Event().wait(IDLE_S)
        idle = trace.near
        one(trace, b"second", 2)  # takes the sample for the exemplars of the metrics, which is taken every few seconds
        good = one(trace, b"good", 3)
        bad = one(trace, b"bad", 4)
        trace.armed = False
    return good, bad


def documented(heading: str) -> set[str]:
    """The files that the first table after these words names."""
    text = DESIGN.read_text(encoding="utf-8")
    table = text[text.index(heading) :].split("\n\n")[1]
    return set(re.findall(r"`([a-z_/]+\.py)`", table))


def test_a_record_passes_few_files_and_design_md_lists_them(kafka: TopicAdmin, topic: TopicFactory) -> None:
    good, bad = ways(kafka, topic)
    assert len(good) <= MAX_FILES, " ".join(sorted(good))
    assert len(bad - good) <= MAX_MORE_TO_A_LETTER, sorted(bad - good)
    way, to_a_letter = documented("## The path of a record"), documented("And if it becomes a dead letter:")
    assert good <= way
    assert bad <= way | to_a_letter  # a run comes back through the mailbox, or not if the loop's own thread ran it
