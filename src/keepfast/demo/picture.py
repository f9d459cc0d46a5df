"""What there is to see at one moment: from the consumer's log, its commits and the carrier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Note:
    """One line of the story. `mood` is good, bad or plain."""

    at_s: float
    about: str
    text: str
    mood: str = "plain"


Tell = Callable[[str, str, str], None]
"""About, text, mood."""


@dataclass(slots=True)
class Picture:
    """Owner: the main thread; a screen's thread may read it, a little late."""

    act: str = "getting ready"
    at_s: float = 0.0
    sent: int = 0
    committed: int = 0
    lanes: int = 0
    retries: int = 0
    discarded: int = 0
    letters: Counter[str] = field(default_factory=Counter)
    """By error code."""
    breaker: str = "closed"
    opened: int = 0
    waited: int = 0
    held_s: float = 0.0
    process: str = "starting"
    deaths: int = 0
    suspected: set[str] = field(default_factory=set)
    """Partitions on probation."""

    def heard(self, entry: dict[str, Any], tell: Tell) -> None:
        """Take in a line of the consumer's or its supervisor's log."""
        match entry.get("event"):
            case "retry_scheduled":
                self.retries += 1
            case "retry_held":
                self.waited += 1
            case "record_discarded":
                self.discarded += 1
            case "dead_lettering" | "dead_lettered" as event:
                self._buried(entry, tell, settled=event == "dead_lettered")
            case str(event) if event.startswith("breaker_"):
                self._breaker(event, entry, tell)
            case str(event) if event.startswith("probation_"):
                self._probation(event, str(entry.get("partition")), tell)
            case "partitions_assigned" if self.process != "running":
                self.process = "running"
                tell("consumer", f"has its {len(entry.get('partitions', ()))} partitions and is at work", "plain")
            case "child_started":
                self.process = "joining"
            case "child_ended":
                self.process = "dead"
                self.deaths += 1
                tell("process", f"died of {entry.get('ending')}; its supervisor starts it again", "bad")
            case "stopping":
                self.process = "draining"
            case _:
                pass  # the log says more than the demo tells

    def _buried(self, entry: dict[str, Any], tell: Tell, *, settled: bool) -> None:
        code = str(entry.get("code"))
        if settled:
            self.letters[code] += 1
        elif code == "CRASHED":
            where = f"the order at {entry.get('partition')}:{entry.get('offset')}"
            tell("crash guard", f"{where} kills its process whenever it is tried: buried, alone", "good")

    def _breaker(self, event: str, entry: dict[str, Any], tell: Tell) -> None:
        if event == "breaker_opened":
            self.breaker, self.opened = "open", self.opened + 1
            tell("breaker", "open: orders wait instead of using up their retries, and none is buried", "bad")
        elif event == "breaker_closed":
            self.breaker = "closed"
            self.held_s += float(entry.get("held_s", 0.0))
            tell("breaker", f"closed after {self.held_s:.1f} s: a probe went through, everybody goes on", "good")

    def _probation(self, event: str, place: str, tell: Tell) -> None:
        if event == "probation_started":
            if not self.suspected:
                tell("crash guard", "twice in the same place: whoever was in hand runs alone now, one by one", "bad")
            self.suspected.add(place)
        elif self.suspected:
            self.suspected.discard(place)
            if not self.suspected:
                tell("crash guard", "all others are cleared and run side by side again", "good")
