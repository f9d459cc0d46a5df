"""The real mailbox: one queue into the loop.

What a loop is told from outside, and how it says that it has ended.
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
    """Word to the loop: start nothing new, finish what runs, be gone by `deadline` (monotonic).

    `leave`: give up the place in the group also if it is a static member's, for it does not come back.
    """

    deadline: float
    leave: bool = False


@dataclass(frozen=True, slots=True)
class HaltApp:
    """Word to the loop: the app is to stop, as by a verdict, although no record is to blame."""

    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Word to the loop: a person says that this hold ("breaker", "storm") is to go, whatever its guard thinks."""

    hold: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a loop ended. `unfinished` is how much was still being handled, buried or committed."""

    kind: Literal["stopped", "halted", "fenced", "failed"]
    reason: str = ""
    unfinished: int = 0
