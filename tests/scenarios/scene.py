"""One scenario on a broker: its topic, its group, its members, its journal."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from keepfast.testing.topics import TopicAdmin
from tests.scenarios.history import History, read_history
from tests.scenarios.journal import Id, Journal
from tests.scenarios.member import APPS, NEW_PROTOCOL, SHORT_SESSION, Member
from tests.support.broker_client import coordinated
from tests.support.waiting import DEADLINE_S, wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A record to send, and what the handler shall do with it (see `apps/journalled.py`).

    `failures`: so many attempts of a delivery fail, with `error`. `value` sends these bytes instead; `tombstone` sends
    null. `manners` of an async handler at a shut gate: "stubborn" or "blocking".
    """

    key: bytes | None = None
    partition: int | None = None
    sleep_s: float = 0.0
    gate: Path | None = None
    manners: str = ""
    failures: int = 0
    error: str = ""
    after_s: float = 0.0
    code: int = 1
    value: bytes | None = None
    tombstone: bool = False
    headers: Sequence[tuple[str, bytes | None]] = ()

    def payload(self, number: int) -> bytes | None:
        if self.tombstone or self.value is not None:
            return self.value
        printed: dict[str, Any] = {"id": number, "sleep_s": self.sleep_s}
        if self.gate is not None:
            printed |= {"gate": str(self.gate), "manners": self.manners}
        if self.failures:
            printed |= {"failures": self.failures, "error": self.error, "after_s": self.after_s, "code": self.code}
        return json.dumps(printed).encode()


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that the broker has acknowledged."""

    id: Id
    key: bytes | None
    work: Work


class Scene:
    """Use it as a context manager: at its end every process it started is gone."""

    def __init__(self, broker: TopicAdmin, folder: Path, *, topic: str, group_protocol: str = "classic") -> None:
        self.broker = broker
        self.group_protocol = group_protocol
        self.folder = folder
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.journal = Journal(folder / "journal")
        self.members: list[Member] = []
        self.sent: list[Sent] = []
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        self._reader: Consumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.close()
        if self._reader is not None:
            self._reader.close()

    # -- records -----------------------------------------------------------------------------------------------------

    def send(self, works: Iterable[Work], *, topic: str | None = None, timeout_s: float = DEADLINE_S) -> list[Sent]:
        """Produce them in this order and wait until all are acknowledged."""
        name = topic or self.topic
        found: dict[int, Sent] = {}
        failures: list[str] = []
        first = len(self.sent)
        count = 0
        for number, work in enumerate(works):
            count += 1

            def delivered(error: Any, message: Any, number: int = number, work: Work = work) -> None:
                if error is not None:
                    failures.append(str(error))
                else:
                    found[number] = Sent(Id(name, message.partition(), message.offset()), work.key, work)

            place: dict[str, Any] = {} if work.partition is None else {"partition": work.partition}
            while True:
                try:
                    self._producer.produce(
                        name,
                        work.payload(first + number),
                        key=work.key,
                        headers=list(work.headers),
                        on_delivery=delivered,
                        **place,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self._producer.poll(0)
        self._producer.flush(timeout_s)
        assert not failures, failures
        assert len(found) == count, f"{count - len(found)} records were not acknowledged within {timeout_s:g} s"
        sent = [found[number] for number in range(count)]
        self.sent += sent
        return sent

    def gate(self, name: str = "gate") -> Path:
        """A gate that is shut; `open_gate` opens it for every record that waits for it."""
        return self.folder / f"{name}-{uuid.uuid4().hex[:6]}"

    @staticmethod
    def open_gate(gate: Path) -> None:
        gate.touch()

    # -- members -----------------------------------------------------------------------------------------------------

    def member(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        variables: Mapping[str, object] | None = None,
        app: str = "journalled.py",
        start: bool = True,
        bootstrap: str | None = None,
        arguments: Sequence[str] = (),
    ) -> Member:
        """One more member of the group, with a short session unless the settings say otherwise; started by default."""
        base: dict[str, object] = {
            **(SHORT_SESSION if self.group_protocol == "classic" else NEW_PROTOCOL),
            "kafka.brokers": bootstrap or self.broker.bootstrap,
            "consumer.topics": self.topic,
            "consumer.group": self.group,
            "health.port": 0,
        }
        merged = {name: value for name, value in (base | dict(settings or {})).items() if value is not None}
        if merged.get("commit.mode") == "interval":
            variables = {"SCENARIO_IDEMPOTENT": "1", **(variables or {})}
        member = Member(
            app=APPS / app,
            folder=self.folder,
            name=f"member-{len(self.members) + 1}",
            settings=merged,
            variables={
                "SCENARIO_JOURNAL": str(self.journal.path),
                **{name: str(value) for name, value in (variables or {}).items()},
            },
            arguments=arguments,
        )
        self.members.append(member)
        return member.start() if start else member

    def logs(self) -> str:
        return "\n".join(f"--- {member.name}\n{member.log()}" for member in self.members)

    # -- what the broker knows ---------------------------------------------------------------------------------------

    def committed(self, topic: str | None = None) -> dict[int, int]:
        """The group's committed offset of each partition in which something is finished. (A commit at the very first
        offset only carries the crash guard's mark.)
        """
        found = self.committed_with_metadata(topic)
        return {partition: offset for partition, (offset, _) in found.items() if offset > 0}

    def committed_with_metadata(self, topic: str | None = None) -> dict[int, tuple[int, str]]:
        name = topic or self.topic
        reader = self._client()
        partitions = reader.list_topics(name, timeout=DEADLINE_S).topics[name].partitions
        found = coordinated(
            lambda: reader.committed([TopicPartition(name, number) for number in partitions], timeout=DEADLINE_S)
        )
        return {one.partition: (one.offset, one.metadata or "") for one in found if one.offset >= 0}

    def history(self) -> History:
        """Every commit of the group, as the broker stored them."""
        return read_history(self.broker.bootstrap, self.group)

    def freeze_with_records_in_flight(self, member: Member, more_work: Callable[[], object] = lambda: None) -> set[Id]:
        """Freeze it when it has something in flight; returns that. Frozen with nothing, it goes on until it has begun
        another record: on a busy machine it does not get that far within a fixed time. `more_work` sends some.
        """

        def caught() -> set[Id]:
            member.freeze()
            spans = [span for span in self.journal.spans() if span.start.pid == member.pid]
            in_hand = {span.id for span in spans if span.outcome is None}
            if not in_hand:
                member.thaw()
                more_work()
                wait_until(lambda: len(self.journal.of("start", pid=member.pid)) > len(spans), "it begins another")
            return in_hand

        return wait_until(caught, "it has something in flight")

    def wait_all_ended(self, sent: Iterable[Sent] | None = None, timeout_s: float = DEADLINE_S) -> None:
        """Wait until the handler has ended for each of these records (all that were sent), by whatever member."""
        wanted = {one.id for one in (self.sent if sent is None else sent)}

        def missing() -> bool:
            left = wanted - self.journal.ended()
            return not left

        wait_until(missing, f"all {len(wanted)} records end", timeout_s=timeout_s)

    def wait_committed(self, timeout_s: float = DEADLINE_S) -> dict[int, int]:
        """Wait until the group has committed everything that was sent to the scene's topic."""
        ends: dict[int, int] = {}
        for one in self.sent:
            if one.id.topic == self.topic:
                ends[one.id.partition] = max(ends.get(one.id.partition, 0), one.id.offset + 1)
        wait_until(
            lambda: {p: offset for p, offset in self.committed().items() if p in ends} == ends,
            f"the group commits {ends}",
            timeout_s=timeout_s,
        )
        return ends

    def _client(self) -> Consumer:
        if self._reader is None:
            self._reader = Consumer(
                {
                    "bootstrap.servers": self.broker.bootstrap,
                    "group.id": self.group,
                    "enable.auto.commit": False,
                    "log_level": 0,
                }
            )
        return self._reader
