"""Waiting for facts, not for seconds: on a loaded machine everything takes longer, and nothing may fail for that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

DEADLINE_S: Final = 120.0
"""Far longer than anything takes: only what never comes fails."""

POLL_S: Final = 0.01

RARELY_S: Final = 0.05
"""Between two looks after a second: each look may be a request to a broker, and hundreds of tests wait side by side."""


def wait_until(
    condition: Callable[[], T],
    what: str = "",
    *,
    timeout_s: float = DEADLINE_S,
    between: Callable[[], object] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> T:
    """Ask until the answer is true, and return it; fails after `timeout_s` with what was waited for.

    `between` is called between two looks, e.g. to poll a source; `now` may be a simulated clock.
    """
    between = between or _Pause()
    deadline = now() + timeout_s
    while not (answer := condition()):
        assert now() < deadline, (
            f"not within {timeout_s:g} s: {what or 'the condition'}; the last answer was {answer!r}"
        )
        between()
    return answer


def happens(condition: Callable[[], object], *, within_s: float, between: Callable[[], object] | None = None) -> bool:
    """Whether it becomes true in this time: mostly, to see that something does not happen."""
    between = between or _Pause()
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        between()
    return True


class _Pause:
    """Sleeps a twentieth of the time since it was made, from `POLL_S` to `RARELY_S`."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def __call__(self) -> None:
        time.sleep(min(max(POLL_S, (time.monotonic() - self._begun) / 20), RARELY_S))
