"""Decisions of the supervisor, as pure functions: which exits are final, restart delays, the exit code."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass

from keepfast.core import exit_codes
from keepfast.core.errors import ConfigError

_MAX_DOUBLINGS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The delay before a child is restarted: `first_delay_s`, doubled with each further death, at most `max_delay_s`.

    After a child has run for `healthy_s`, the delay is `first_delay_s` again.
    """

    first_delay_s: float = 1.0
    max_delay_s: float = 30.0
    healthy_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.first_delay_s <= self.max_delay_s:
            raise ConfigError(
                "RestartPolicy needs 0 < first_delay_s <= max_delay_s;"
                f" got {self.first_delay_s} and {self.max_delay_s}. A restart without delay would be a busy loop."
            )

    def delay_s(self, deaths: int) -> float:
        """The delay after the n-th death in a row; the first is 1."""
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** min(deaths - 1, _MAX_DOUBLINGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownPolicy:
    """How long children may take to end. Each child enforces its own deadline; this is for those that fail to."""

    margin_s: float = 5.0
    """Added to a child's own `shutdown_timeout_s`; after that it is killed."""
    second_signal_timeout_s: float = 2.0
    """How long children may take after a second signal."""
    unknown_timeout_s: float = 30.0
    """Used for a child that has not reported its own timeout."""


def is_final(code: int) -> bool:
    """Whether a child that ended by itself with this code is not restarted, and stops the others.

    Everything else is restarted: unexpected errors, signals, unknown codes, and also 0 and 5, which mean that this one
    child was stopped from outside: the supervisor keeps all of them running.
    """
    return code in exit_codes.NOT_RESTARTED


def exit_code(codes: Collection[int], *, second_signal: int | None, cause: int | None, killed: bool) -> int:
    """The exit code of the supervisor, from the exit codes of its children while it was stopping.

    A second signal takes precedence, then the final exit that was the cause, then the worst exit of the children.
    """
    if second_signal is not None:
        return 128 + second_signal
    if cause is not None:
        return cause
    # A child that a signal ended before it handled signals had started nothing: a clean exit.
    worse = {code for code in codes if code not in {exit_codes.EXIT_OK, -signal.SIGTERM, -signal.SIGINT}}
    for code in (exit_codes.EXIT_FENCED, exit_codes.EXIT_HALTED, exit_codes.EXIT_NOT_STARTED, exit_codes.EXIT_USAGE):
        if code in worse:
            return code
    if killed:
        return exit_codes.EXIT_DEADLINE
    if worse - {exit_codes.EXIT_DEADLINE}:
        return exit_codes.EXIT_UNEXPECTED
    return exit_codes.EXIT_DEADLINE if worse else exit_codes.EXIT_OK
