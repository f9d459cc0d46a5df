"""W7: what a rolling restart costs (`python -m bench w7`).

Three members share 12 partitions and 600 records a second. Each member in turn is stopped and started again, twice; the
next one waits until the group is in balance. For each partition: the longest time without a record handled, and the
sum of all such times above GAP_S.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer

from keepfast.testing import KafkaBroker

MEMBERS, PARTITIONS, RATE, ROUNDS = 3, 12, 600, 2
GAP_S = 0.5
"""Shorter pauses are not counted: a partition gets a record every 20 ms."""
BALANCE_S = 45.0
"""The longest wait for a balanced group; what is measured until then counts nevertheless."""
QUIET_S = 1.0
"""How long the group must have been in balance."""
END_S = 40.0
AS_SHIPPED = {
    "group.initial.rebalance.delay.ms": "3000",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.heartbeat.interval.ms": "5000",
}
"""Kafka's own defaults, which a broker for tests does not have: they are what a rebalance takes."""
NAME = "KEEPFAST_CONSUMER_GROUP_INSTANCE_ID"

APP = """
import os, time
from keepfast import App, Context

app = App("bench")
journal = os.open(os.environ["BENCH_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.consumer()
def work(value: bytes, ctx: Context) -> None:
    os.write(journal, f"{time.monotonic()} {ctx.partition} {ctx.offset}\\n".encode())
"""


@dataclass(frozen=True, slots=True)
class Variant:
    """`target_s`: the longest pause of any partition. `repeats`: whether records may be handled twice."""

    name: str
    what: str
    static: bool = False
    stop_with: signal.Signals = signal.SIGTERM
    target_s: float | None = None
    repeats: bool = False


JOIN = "join"
VARIANTS = (
    Variant("defaults", "SIGTERM, no settings", target_s=6.0),
    Variant("static", "SIGTERM, each member with a group_instance_id", static=True, target_s=3.0),
    Variant(
        "killed", "kill -9, each member with a group_instance_id", static=True, stop_with=signal.SIGKILL, repeats=True
    ),
)


@dataclass(frozen=True, slots=True)
class Pauses:
    """`worst_s`: of the worst partition; `lost_s`: of all partitions together."""

    variant: str
    seconds: float
    worst_s: float
    lost_s: float
    records: int
    repeats: int
    missing: int
    balanced: bool


def run(*, as_json: bool, python: str = sys.executable) -> list[str]:
    """Prints a row for each variant; returns what missed its target. `python` runs the members."""
    missed = []
    if not as_json:
        print(f"\nW7: rolling restart; {MEMBERS} members, {PARTITIONS} partitions, {RATE} records/s")
    with KafkaBroker(config=AS_SHIPPED) as broker:
        for variant in VARIANTS:
            for found in _measure(variant, broker, python):
                target_s = variant.target_s if found.variant == variant.name else None
                _print(found, target_s, as_json=as_json)
                late = target_s is not None and found.worst_s > target_s
                if late or found.missing or (found.repeats and not variant.repeats):
                    missed.append(
                        f"w7 {found.variant}: worst {found.worst_s:.1f} s, target {target_s}; {found.repeats} repeats,"
                        f" {found.missing} missing"
                    )
    return missed


def _print(found: Pauses, target_s: float | None, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"workload": "w7", **asdict(found), "target": target_s}), flush=True)
        return
    target = "" if target_s is None else f"  target {target_s:g} s"
    print(
        f"  {found.variant:20} worst partition {found.worst_s:5.1f} s  lost {found.lost_s:6.1f} partition-seconds of"
        f" {found.seconds * PARTITIONS:.0f}  repeats {found.repeats}  missing {found.missing}"
        f"{'' if found.balanced else '  NOT BALANCED'}{target}",
        flush=True,
    )


def _measure(variant: Variant, broker: KafkaBroker, python: str) -> Iterator[Pauses]:
    """The restarts; without ids the first join, too."""
    topic = broker.create_topic(f"bench.rolling-{variant.name}.v1", partitions=PARTITIONS)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "app.py").write_text(APP)
        sent = stack.enter_context(_producing(broker.bootstrap, topic))
        variables = {"KAFKA_BROKERS": broker.bootstrap, "KAFKA_INPUT_TOPIC": topic, "KAFKA_CONSUMER_GROUP": topic}
        names = [{NAME: f"member-{number}"} if variant.static else {} for number in range(MEMBERS)]
        group = [_Member(folder, number, python, variables | name) for number, name in enumerate(names)]
        for member in group:
            stack.callback(member.kill)
        began = time.monotonic()
        for member in group:
            member.start()
        balanced = _balance(group, began)
        if not variant.static:
            yield _pauses(JOIN, group, began, balanced=balanced)
        began = time.monotonic()
        for member in group * ROUNDS:
            member.stop(variant.stop_with)
            member.start()
            balanced = _balance(group, time.monotonic()) and balanced
        yield _pauses(variant.name, group, began, balanced=balanced, sent=sent)


class _Member:
    """One process, again and again."""

    def __init__(self, folder: Path, number: int, python: str, variables: dict[str, str]) -> None:
        self.journal = folder / f"{number}.journal"
        self._folder = folder
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("KEEPFAST_", "KAFKA_"))}
        self._environ = {
            **inherited,
            **variables,
            "HEALTH_CHECK_ENABLED": "false",
            "BENCH_JOURNAL": str(self.journal),
        }

    def start(self) -> None:
        command = [self._python, "-m", "keepfast", "run", "app:app"]
        with self._folder.joinpath("log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, env=self._environ, stderr=log, stdout=log)

    def stop(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(END_S)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(END_S)

    def handled(self, since: float = 0.0) -> list[tuple[float, int, int]]:
        """Time, partition and offset of each record."""
        if not self.journal.exists():
            return []
        *lines, _ = self.journal.read_text().split("\n")
        rows = (line.split() for line in lines)
        found = [(float(at), int(partition), int(offset)) for at, partition, offset in rows]
        return [row for row in found if row[0] >= since]


def _balance(group: list[_Member], since: float) -> bool:
    """Wait until every member handles its share of the partitions, at most BALANCE_S."""

    def balanced() -> bool:
        recent = max(since, time.monotonic() - QUIET_S)
        if time.monotonic() - since < QUIET_S:
            return False
        shares = [{partition for _, partition, _ in member.handled(recent)} for member in group]
        return [len(share) for share in shares] == [PARTITIONS // MEMBERS] * MEMBERS and len(
            set().union(*shares)
        ) == PARTITIONS

    return _until(balanced, BALANCE_S)


def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _pauses(variant: str, group: list[_Member], began: float, *, balanced: bool, sent: _Sent | None = None) -> Pauses:
    ended = time.monotonic()
    missing = 0
    if sent is not None:
        sent.stop()
        _until(lambda: _missing(sent, group) == 0, END_S)
        missing = _missing(sent, group)
    rows = [row for member in group for row in member.handled()]
    times: dict[int, list[float]] = defaultdict(list)
    for at, partition, _ in sorted(rows):
        if began <= at <= ended:
            times[partition].append(at)
    gaps = [
        later - earlier
        for partition in range(PARTITIONS)
        for earlier, later in zip([began, *times[partition]], [*times[partition], ended], strict=True)
    ]
    places = Counter((partition, offset) for _, partition, offset in rows)
    return Pauses(
        variant=variant,
        seconds=ended - began,
        worst_s=max(gaps),
        lost_s=sum(gap for gap in gaps if gap > GAP_S),
        records=len(rows),
        repeats=sum(places.values()) - len(places),
        missing=missing,
        balanced=balanced,
    )


class _Sent:
    """What the producing thread has sent; `stop` ends it and waits for the acknowledgements."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.count = 0
        self._ending = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()
        if self._producer.flush(END_S):
            raise RuntimeError("not all records were acknowledged")

    def _send(self) -> None:
        began = time.monotonic()
        while not self._ending.wait(0.01):
            while self.count < (time.monotonic() - began) * RATE:
                self._producer.produce(self._topic, b"x" * 200, partition=self.count % PARTITIONS)
                self.count += 1
            self._producer.poll(0)


@contextmanager
def _producing(bootstrap: str, topic: str) -> Iterator[_Sent]:
    sent = _Sent(bootstrap, topic)
    try:
        yield sent
    finally:
        sent.stop()


def _missing(sent: _Sent, group: list[_Member]) -> int:
    return sent.count - len({(partition, offset) for member in group for _, partition, offset in member.handled()})
