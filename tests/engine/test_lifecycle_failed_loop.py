"""Whatever a loop fails with, somebody hears of it: a consumer that is gone must not look like a clean end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from keepfast.core.exit_codes import EXIT_UNEXPECTED
from keepfast.engine.lifecycle import Lifecycle, LoopThread


class Failing:
    """A loop that fails in its first turn."""

    plan = SimpleNamespace(name="c")
    ending = halted = None

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.abandoned = False

    def start(self) -> None: ...

    def step(self, now: float) -> None:
        raise self.error

    def abandon(self, error: BaseException) -> None:
        self.abandoned = error is self.error


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
def test_the_exit_code_says_so_and_the_group_is_left(error: BaseException) -> None:
    loop: Any = Failing(error)
    mailbox: Any = SimpleNamespace(post=lambda _: None)
    thread = LoopThread(loop, mailbox)
    assert Lifecycle([thread], shutdown_timeout_s=5).run(lambda _: None) == EXIT_UNEXPECTED
    assert loop.abandoned
    assert thread.ending is not None
    assert type(error).__name__ in thread.ending.reason
