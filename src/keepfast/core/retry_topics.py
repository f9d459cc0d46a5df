"""Retry topics: where a record waits that failed too often in place, so that its partition goes on meanwhile.

The topic of a delay is `<topic>.<group>.retry.<delay>`: two groups on one topic must not run each other's retries. A
record goes through the delays one by one, an attempt after each, and is buried after the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from keepfast.core import checks
from keepfast.core.errors import ConfigError
from keepfast.core.names import topic_problem

SHORTEST_S: Final = 1
LONGEST_S: Final = 86_400
MOST_STEPS: Final = 32
"""Moves of one record; several may have the same delay, and then share a topic."""

KEPT_S: Final = 7 * 86_400
"""How long a record stays in its retry topic after it is due: the consumer may be down over a long weekend."""

EXPECTED: Final = "delays from 1s to 1d, like 5s, 10m, 2h"

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DELAY: Final = re.compile(r"([1-9][0-9]{0,4})([smhd])", re.ASCII)


def delay_s(text: object) -> int | None:
    """The seconds of a delay like `10m`; None if it is none, or none that is allowed here."""
    found = _DELAY.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        return None
    seconds = int(found[1]) * _UNITS[found[2]]
    return seconds if SHORTEST_S <= seconds <= LONGEST_S else None


def delay_text(seconds: int) -> str:
    """The one way to write a delay, so that `60s` and `1m` mean the same topic."""
    unit = next(unit for unit, size in _UNITS.items() if seconds % size == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


def topic_name(source: str, group: str, seconds: int) -> str:
    return f"{source}.{group}.retry.{delay_text(seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTopics:
    """Delays like `("5s", "1m", "10m")` that a record waits in topics of their own after its retries in place.

    There is one attempt after each; then it is buried. No delays: no retry topics. A record that comes back is
    overtaken by those behind it, so with order="partition" or "key" this must be asked for: `allow_reorder=True`.
    """

    delays: tuple[str, ...] = ()
    allow_reorder: bool = False
    create_topics: bool = True

    def __post_init__(self) -> None:
        problems = {
            "delays": self._problem(),
            "allow_reorder": checks.flag(self.allow_reorder),
            "create_topics": checks.flag(self.create_topics),
        }
        found = [f"retry_topics: {name} {problem}." for name, problem in problems.items() if problem]
        if found:
            raise ConfigError(*found)
        object.__setattr__(self, "delays", tuple(map(delay_text, self.delays_s)))

    def _problem(self) -> str | None:
        if not isinstance(self.delays, tuple | list):
            return f"must be {EXPECTED}; got {checks.shown(self.delays)}"
        wrong = next((text for text in self.delays if delay_s(text) is None), None)
        if wrong is not None:
            return f"must be {EXPECTED}; got {checks.shown(wrong)}"
        if len(self.delays) > MOST_STEPS:
            return f"must be at most {MOST_STEPS} delays; got {len(self.delays)}"
        return None

    def __bool__(self) -> bool:
        return bool(self.delays)

    @property
    def delays_s(self) -> tuple[int, ...]:
        return tuple(seconds for text in self.delays if (seconds := delay_s(text)) is not None)

    def topics(self, source: str, group: str) -> dict[str, int]:
        """The retry topics of one source topic, each with its delay in seconds."""
        return {topic_name(source, group, seconds): seconds for seconds in self.delays_s}

    def name_problem(self, source: str, group: str) -> str | None:
        """Why Kafka would refuse one of the names, as the end of a sentence."""
        return next(filter(None, map(topic_problem, self.topics(source, group))), None)


def left_over(existing: Iterable[str], source: str, group: str, configured: Iterable[str]) -> dict[str, int]:
    """Retry topics of this group that exist and are not configured (any more), each with its delay in seconds."""
    known = set(configured)
    stem = topic_name(source, group, SHORTEST_S).removesuffix(delay_text(SHORTEST_S))
    found: dict[str, int] = {}
    for name in sorted(existing):
        seconds = delay_s(name.removeprefix(stem)) if name.startswith(stem) and name not in known else None
        if seconds is not None and name == f"{stem}{delay_text(seconds)}":
            found[name] = seconds
    return found


@dataclass(frozen=True, slots=True)
class Tier:
    """One retry topic: whose records it holds, for how long, and how many partitions it has."""

    topic: str
    source: str
    delay_s: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The retry topics of one consumer. `delays_s` are the steps of the way; `topics` may have more: those that an
    earlier configuration has left, whose records still come back.
    """

    group: str
    delays_s: tuple[int, ...] = ()
    topics: Mapping[str, Tier] = field(default_factory=dict)

    def at(self, source: str, step: int) -> Tier:
        """Where records of this topic go for step number `step`, counted from 1."""
        return self.topics[topic_name(source, self.group, self.delays_s[step - 1])]

    def steps_at(self, tier: Tier) -> list[int]:
        """The steps that end in this topic; none if it is left over."""
        return [step for step, seconds in enumerate(self.delays_s, start=1) if seconds == tier.delay_s]


def next_step(delays_s: tuple[int, ...], behind: int, asked_s: float) -> int | None:
    """The step after `behind` of them: the first whose delay is not shorter than what the downstream asked for, else
    the longest one left; None when there is none left. Steps in between are passed over, as they would come too soon.
    """
    left = range(behind, len(delays_s))
    return max(left, key=lambda index: min(delays_s[index], asked_s), default=-1) + 1 or None
