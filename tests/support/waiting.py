"""Waiting for facts, not for seconds: on a loaded machine everything takes longer, and nothing may fail for that."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")

DEADLINE_S: Final = 120.0
"""Far longer than anything takes: only what never comes fails."""

POLL_S: Final = 0.01

_pause: Final = partial(time.sleep, POLL_S)


def wait_until(
    condition: Callable[[], T],
    what: str = "",
    *,
    timeout_s: float = DEADLINE_S,
    between: Callable[[], object] = _pause,
    now: Callable[[], float] = time.monotonic,
) -> T:
    """Ask until the answer is true, and return it; fails after `timeout_s` with what was waited for.

    `between` is called between two looks, e.g. to poll a source; `now` may be a simulated clock.
    """
    deadline = now() + timeout_s
    while not (answer := condition()):
        assert now() < deadline, (
            f"not within {timeout_s:g} s: {what or 'the condition'}; the last answer was {answer!r}"
        )
        between()
    return answer


def happens(condition: Callable[[], object], *, within_s: float, between: Callable[[], object] = _pause) -> bool:
    """Whether it becomes true in this time: mostly, to see that something does not happen."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        between()
    return True
