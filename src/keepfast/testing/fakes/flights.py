"""The flight recorders of simulated processes, as one host has them: the real format, in memory instead of files."""

from __future__ import annotations

from keepfast.core.crash_guard import NOT_DEAD, UNKNOWN, Fate, spans_of
from keepfast.core.records import TopicPartition
from keepfast.engine.flight_recorder import (
    LEFT,
    RUNNING,
    Content,
    FlightRecorder,
    digest,
    read_in_hand,
    read_state,
    size_of,
)
from keepfast.testing.fakes.process import Process

SLOTS, LISTS = 64, 16


class Flights:
    """What every process of the host noted, by token.

    `answers` is what was last answered to a process about a token: the oracle judges by it.
    """

    def __init__(self) -> None:
        self._owners: dict[str, Process] = {}
        self._noted: dict[str, bytes | None] = {}  # of those that have ended; None: removed
        self._recorders: dict[str, FlightRecorder] = {}
        self.answers: dict[tuple[str, str], Content] = {}

    def open(self, process: Process) -> FlightRecorder:
        """The recorder of a new process; its contents are kept when the process ends."""
        token = f"{len(self._owners) + 1:016x}"
        memory = bytearray(size_of(slots=SLOTS, lists=LISTS))
        recorder = FlightRecorder(token, memory, _Archive(self, process.name), slots=SLOTS, lists=LISTS)
        self._owners[token], self._recorders[process.name] = process, recorder

        def keep() -> None:
            self._noted.setdefault(token, bytes(memory))

        process.at_end.append(keep)
        return recorder

    def leave(self, process: Process, *, clean: bool) -> None:
        """The process ends on purpose: a clean end removes its file."""
        recorder = self._recorders.get(process.name)
        if recorder is not None:
            recorder.leave()
            if clean:
                self._noted[recorder.token] = None

    def owner(self, token: str) -> str:
        """The name of the process."""
        return self._owners[token].name if token in self._owners else ""

    def tokens(self) -> list[str]:
        """Of all processes whose file was not removed."""
        return [token for token in self._owners if self._noted.get(token, b"") is not None]

    def fate(self, asker: str, token: str, group: str, place: TopicPartition, topic_id: str) -> Fate:
        """What the process should conclude about a lease with this token, from the answers it got."""
        owner = self.owner(token)
        if not owner or asker not in self._recorders:
            return UNKNOWN
        if owner == asker:
            return NOT_DEAD
        answer = self.answers[asker, token] if (asker, token) in self.answers else self.find(asker, token)
        if not isinstance(answer, bytes):
            return NOT_DEAD if answer == "alive" else UNKNOWN
        state = read_state(answer)
        if state != RUNNING:
            return NOT_DEAD if state == LEFT else UNKNOWN
        noted = read_in_hand(answer)
        keys = {(digest(group, place.topic, one), place.partition) for one in (topic_id, "")}
        return Fate(dead=True, in_hand=spans_of(span for key in keys for span in noted.get(key, ())))

    def find(self, asker: str, token: str) -> Content:
        owner = self._owners.get(token)
        content: Content = "alive" if owner is not None and owner.alive else self._noted.get(token)
        self.answers[asker, token] = content
        return content


class _Archive:
    """Implements `flight_recorder.Archive`."""

    def __init__(self, flights: Flights, asker: str) -> None:
        self._flights = flights
        self._asker = asker

    def find(self, token: str) -> Content:
        return self._flights.find(self._asker, token)

    def tokens(self) -> list[str]:
        return self._flights.tokens()
