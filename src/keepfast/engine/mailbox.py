"""The real mailbox: one queue into the loop.

What is posted to a loop from outside, and how a loop has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, Literal


class QueueMailbox:
    """`post` from any thread; `collect` on the loop thread. A list that is posted counts as its items, in order."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()

    def post(self, item: Any) -> None:
        self._queue.put(item)

    def collect(self, timeout_s: float) -> list[Any]:
        queue = self._queue
        items: list[Any] = []
        try:
            self._take(queue.get_nowait() if timeout_s <= 0 else queue.get(timeout=timeout_s), items)
            while True:
                self._take(queue.get_nowait(), items)
        except Empty:
            return items

    @staticmethod
    def _take(item: Any, items: list[Any]) -> None:
        if type(item) is list:
            items.extend(item)
        else:
            items.append(item)


DRAIN: Final = "drain"
"""The hold on a consumer that is about to go."""


@dataclass(frozen=True, slots=True)
class Stop:
    """To the loop: start nothing new, finish what runs, be gone by `deadline` (monotonic).

    `leave`: give up the place in the group also if it is a static member's, for it does not come back.
    """

    deadline: float
    leave: bool = False


@dataclass(frozen=True, slots=True)
class HaltApp:
    """To the loop: the app is to stop, as by a verdict, although no record is the cause."""

    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """To the loop: an operator releases this hold ("breaker", "storm"), whatever its guard has found."""

    hold: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a loop ended. `unfinished` is how much was still being handled, dead-lettered or committed. `unconfirmed`: of
    so many partitions, also of those that were given up before, the last commit was not confirmed; if nothing is
    unfinished, it only says that the process ends.
    `crashed`: the loop itself failed, which counts as the death of its process; a client that failed does not.
    """

    kind: Literal["stopped", "halted", "fenced", "failed"]
    reason: str = ""
    unfinished: int = 0
    unconfirmed: int = 0
    crashed: bool = False

    @property
    def complete(self) -> bool:
        """Whether it was stopped, and all is finished and committed."""
        return self.kind == "stopped" and not self.unfinished
