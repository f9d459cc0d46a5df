"""The state to display: from the consumer's events, its commits and the carrier."""

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


Notify = Callable[[str, str, str], None]
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
    suspected: set[int] = field(default_factory=set)
    """Partitions on probation."""

    def take(self, event: dict[str, Any], note: Notify) -> None:
        """Apply an event of the consumer (`core.events`) or of its supervisor."""
        match event["event"]:
            case "RetryScheduled":
                self.retries += 1
            case "RecordFailed":
                self._failed(event, note)
            case "Discarded":
                self.discarded += 1
            case "DeadLettered":
                self.letters[str(event["code"])] += 1
            case "BreakerOpened" | "BreakerClosed":
                self._breaker(event, note)
            case "ProbationStarted" | "ProbationEnded":
                self._probation(event, note)
            case "Assigned" if self.process != "running":
                self.process = "running"
                note("consumer", f"has its {len(event['partitions'])} partitions and is running", "plain")
            case "ChildStarted":
                self.process = "joining"
            case "ChildExited" if not event["stopping"]:
                self.process = "dead"
                self.deaths += 1
                note("process", f"crashed ({event['ending']}); its supervisor restarts it", "bad")
            case "DrainStarted":
                self.process = "draining"
            case _:
                pass  # the demo does not display other events

    def _failed(self, event: dict[str, Any], note: Notify) -> None:
        if event["verdict"] is None:
            self.waited += 1
        elif event["code"] == "CRASHED":
            order = f"the order at {event['partition']}:{event['offset']}"
            note("crash guard", f"{order} crashes its process at every attempt: it alone is dead-lettered", "good")

    def _breaker(self, event: dict[str, Any], note: Notify) -> None:
        if event["event"] == "BreakerOpened":
            self.breaker, self.opened = "open", self.opened + 1
            note("breaker", "open: orders wait instead of exhausting their retries, and none is dead-lettered", "bad")
        else:
            self.breaker = "closed"
            self.held_s += float(event["held_s"])
            note("breaker", f"closed after {self.held_s:.1f} s: a probe succeeded, all orders continue", "good")

    def _probation(self, event: dict[str, Any], note: Notify) -> None:
        partition = int(event["partition"])
        if event["event"] == "ProbationStarted":
            if not self.suspected:
                note("crash guard", "twice in the same place: each order that was in flight runs alone now", "bad")
            self.suspected.add(partition)
        elif self.suspected:
            self.suspected.discard(partition)
            if not self.suspected:
                note("crash guard", "all others are cleared and run in parallel again", "good")
