"""What the supervisor decides, as functions of values: which end is final, how long to wait, which code to end with."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass

from keepfast.core import exit_codes
from keepfast.core.errors import ConfigError

_MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How long a dead child stays down: `first_delay_s`, doubled with every death, at most `most_delay_s`.

    A child that lived for `healthy_s` starts again from the first delay.
    """

    first_delay_s: float = 1.0
    most_delay_s: float = 30.0
    healthy_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.first_delay_s <= self.most_delay_s:
            raise ConfigError(
                "RestartPolicy needs 0 < first_delay_s <= most_delay_s;"
                f" got {self.first_delay_s} and {self.most_delay_s}. A restart without delay would be a busy loop."
            )

    def delay_s(self, deaths: int) -> float:
        """How long to wait after the n-th death in a row; the first is 1."""
        return min(self.most_delay_s, self.first_delay_s * 2.0 ** min(deaths - 1, _MAX_DOUBLINGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownPolicy:
    """How long children may take to end. Each keeps its own deadline; this is for those that cannot."""

    margin_s: float = 5.0
    """Added to a child's own `shutdown_timeout_s`; then it is killed."""
    hurry_s: float = 2.0
    """After a second signal."""
    unknown_timeout_s: float = 30.0
    """Taken for a child that has not told its own."""


def is_final(code: int) -> bool:
    """Whether a child that ended like this, unasked, stays down and takes the others with it.

    All else is restarted: unexpected errors, deaths by signal, codes of nobody's, and also 0 and 5, which
    mean that somebody stopped this one child: the supervisor's task is to keep all of them running.
    """
    return code in exit_codes.NOT_RESTARTED


def exit_code(codes: Collection[int], *, second_signal: int | None, cause: int | None, killed: bool) -> int:
    """What the supervisor ends with, from how its children ended while it was stopping.

    A second signal goes first, then the final end that was the cause, then the worst of the children.
    """
    if second_signal is not None:
        return 128 + second_signal
    if cause is not None:
        return cause
    # A child that a signal ended before it listened to signals had not started anything: clean.
    worse = {code for code in codes if code not in {exit_codes.EXIT_OK, -signal.SIGTERM, -signal.SIGINT}}
    for code in (exit_codes.EXIT_FENCED, exit_codes.EXIT_HALTED, exit_codes.EXIT_NOT_STARTED, exit_codes.EXIT_USAGE):
        if code in worse:
            return code
    if killed:
        return exit_codes.EXIT_DEADLINE
    if worse - {exit_codes.EXIT_DEADLINE}:
        return exit_codes.EXIT_UNEXPECTED
    return exit_codes.EXIT_DEADLINE if worse else exit_codes.EXIT_OK
