"""The steps of the demo. The result is not scripted: the account is read from the topics."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from keepfast.core.errors import KeepfastError
from keepfast.demo.carrier import Carrier
from keepfast.demo.consumer_process import ConsumerProcess, environment
from keepfast.demo.orders import CUSTOMERS, OrderPlan
from keepfast.demo.picture import Note, Picture
from keepfast.demo.reconcile import Account
from keepfast.demo.screen import ScreenView
from keepfast.demo.shop import ORDERS, SHIPMENTS, app
from keepfast.desk import Cause, Desk, DeskOptions
from keepfast.kafka.config import Connection
from keepfast.settings import ConsumerSettings
from keepfast.testing.embedded import PARTITIONS

SHOP = "keepfast.demo.shop:app"
OUTAGE_AT, OUTAGE_S = 0.3, 1.5
PROGRESS_TIMEOUT_S, POLL_INTERVAL_S, READ_S = 90.0, 0.1, 60.0
FIXED_TYPES = frozenset({"ValueError", "Crashed"})
"""Fixes of release 1.1 of the shop: coupons with a per cent sign, and the label printer."""

EMBEDDED: Mapping[str, str] = MappingProxyType(
    {
        # It does not support static members: a restarted member waits for the session of the crashed one, less a
        # second. The first member always waits 3 s, so a shorter session would expire before it begins.
        "KEEPFAST_CONSUMERS_SHIP_CONSUMER_SESSION_TIMEOUT_MS": "3600",
        "KEEPFAST_CONSUMERS_SHIP_CONSUMER_HEARTBEAT_INTERVAL_MS": "500",
    }
)
"""Settings of the consumer on the embedded broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Environment of the demo: broker, plan and output."""

    brokers: str
    kind: str
    """Description of the broker."""
    plan: OrderPlan
    view: ScreenView
    folder: Path
    begun_at: float
    settings: Mapping[str, str]
    target: str = SHOP


def letter_topic() -> str:
    [topic] = _consumer().dead_letter_topics.values()
    return topic


def _consumer() -> ConsumerSettings:
    """Settings from its code only: no environment, no files of the user's folder."""
    return app.settings(environ={}, cwd=Path(__file__).parent).consumers["ship"]


def topics() -> tuple[str, ...]:
    """All topics of the demo, for a broker without automatic creation."""
    return ORDERS, SHIPMENTS, letter_topic()


class Story:
    """One run of the demo. Owner: the main thread."""

    def __init__(self, stage: Stage, carrier: Carrier) -> None:
        self._stage = stage
        self._carrier = carrier
        self._picture = Picture(sent=stage.plan.records)
        self.consumer = ConsumerProcess(
            target=stage.target,
            brokers=stage.brokers,
            carrier=carrier.address,
            folder=stage.folder,
            settings=stage.settings,
        )
        self._client = Consumer(
            {
                "bootstrap.servers": stage.brokers,
                "group.id": _consumer().group,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._outage_ends_at: float | None = None
        self._outages = 0 if stage.plan.calm else 1

    def play(self) -> Account:
        """From the first order to the account; the consumer is left running. Raises KeepfastError."""
        self._send()
        self.consumer.start("1.0")
        self._act("consuming")
        self._until_all_is_committed()
        self._act("all through")
        causes = self._causes()
        fixed = [cause for cause in causes if cause.error_type in FIXED_TYPES]
        self._stage.view.causes(letter_topic(), causes, {cause.fingerprint for cause in fixed})
        self._act("deploying the fix")
        code = self.consumer.stop()
        self._note("fix", f"release 1.0 drained (exit code {code}); 1.1 reads new coupons and prints any name", "good")
        self.consumer.start("1.1")
        if fixed:
            self._act("replaying")
            self._replay(fixed)
        self._until_all_is_committed()
        self._act("reading the topics")
        return self._reconcile()

    def close(self) -> None:
        """Stop the consumer. Idempotent."""
        self.consumer.stop()
        self._client.close()

    # -- acts

    def _send(self) -> None:
        plan = self._stage.plan
        failed: list[str] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(str(error))

        producer = Producer({"bootstrap.servers": self._stage.brokers, "linger.ms": 5, "log_level": 0})
        for key, value in plan.orders():
            producer.produce(ORDERS, value, key, on_delivery=delivered)
            producer.poll(0)
        if producer.flush(30) or failed:
            raise KeepfastError(f"The demo's broker did not accept the orders: {failed[:1] or 'no answer in 30 s'}.")
        self._note("broker", f"{self._stage.kind}, at {self._stage.brokers}", "plain")
        self._note("shop", f"{plan.records:,} orders of {CUSTOMERS} customers sent to {ORDERS}", "plain")

    def _causes(self) -> list[Cause]:
        connection = Connection(brokers=self._stage.brokers.split(","), properties={"log_level": 0})
        desk = Desk(connection, DeskOptions(topics=(letter_topic(),), by="keepfast demo"))
        try:
            desk.refresh()
            return desk.causes()
        finally:
            desk.close()

    def _replay(self, causes: list[Cause]) -> None:
        words = ["keepfast", "dlq", "replay", letter_topic()]
        for cause in causes:
            words += ["--cause", cause.fingerprint[:6]]  # a prefix is enough
        self._note("replay", " ".join(words), "plain")
        output = self._run(["-m", *words, "--yes", "--brokers", self._stage.brokers])
        self._note("replay", next(line for line in output.splitlines() if line.startswith("Replayed")), "good")

    def _reconcile(self) -> Account:
        plan = self._stage.plan
        words = [self._stage.brokers, letter_topic(), str(self.consumer.events)]
        numbers = [str(plan.records), str(plan.seed), str(int(plan.calm))]
        return Account(**json.loads(self._run(["-m", "keepfast.demo.reconcile", *words, *numbers])))

    def _run(self, words: list[str]) -> str:
        """Run a program to its end; returns its output. Raises KeepfastError if it fails."""
        # In a group of its own: Ctrl-C reaches only the demo, which stops it.
        with subprocess.Popen(
            [sys.executable, *words],
            env=environment(),
            cwd=self._stage.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        ) as process:
            deadline = time.monotonic() + READ_S
            try:
                while True:
                    try:
                        output, errors = process.communicate(timeout=POLL_INTERVAL_S)
                        break
                    except subprocess.TimeoutExpired:
                        if time.monotonic() > deadline:
                            raise
                        self._update()
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise KeepfastError(f"`{' '.join(words[1:3])}` failed with {process.returncode}: {errors.strip()}")
        return output.strip()

    # -- looking

    def _until_all_is_committed(self) -> None:
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while not self._update():
            self.consumer.check()
            if time.monotonic() > deadline:
                done, sent = self._picture.committed, self._picture.sent
                self._note(
                    "consumer",
                    f"has committed {done:,} of {sent:,} in {PROGRESS_TIMEOUT_S:g} s: timeout",
                    "bad",
                )
                return  # the account will show the consequences
            time.sleep(POLL_INTERVAL_S)

    def _update(self) -> bool:
        """Apply new events and refresh the screen. Returns whether all records of the topic are committed."""
        picture = self._picture
        for event in self.consumer.happened():
            picture.take(event, self._note)
        places = [TopicPartition(ORDERS, number) for number in range(PARTITIONS)]
        ends = [self._client.get_watermark_offsets(place, timeout=10)[1] for place in places]
        committed = self._client.committed(places, timeout=10)
        picture.sent = sum(ends)
        picture.committed = sum(max(0, one.offset) for one in committed)
        picture.lanes = self._carrier.open_requests
        picture.at_s = time.monotonic() - self._stage.begun_at
        self._outage(time.monotonic())
        self._stage.view.show(picture)
        return all(one.offset >= end for one, end in zip(committed, ends, strict=True))

    def _outage(self, now: float) -> None:
        """One outage of the carrier in the middle of the work."""
        if self._outages and self._picture.committed >= OUTAGE_AT * self._stage.plan.records:
            self._outages = 0
            self._note("carrier", "is down: it resets every connection", "bad")
            self._carrier.away = True
            self._outage_ends_at = now + OUTAGE_S
        elif self._outage_ends_at is not None and now >= self._outage_ends_at:
            self._outage_ends_at = None
            self._carrier.away = False
            self._note("carrier", "is back", "good")

    def _act(self, name: str) -> None:
        self._picture.act = name

    def _note(self, about: str, text: str, mood: str) -> None:
        self._stage.view.note(Note(time.monotonic() - self._stage.begun_at, about, text, mood))


def play(stage: Stage, then: Callable[[Account], None]) -> Account:
    """Run it; `then` is called with the account while the consumer still runs. Cleans up everything."""
    with Carrier() as carrier:
        story = Story(stage, carrier)
        try:
            account = story.play()
            then(account)
        finally:
            story.close()
    return account
