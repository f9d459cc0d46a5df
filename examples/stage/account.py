"""The account of a run: every identity that was sent, its expected and its actual outcome."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

MAX_NAMED = 5


@dataclass(slots=True)
class Account:
    """Reports `lost 1` if one is lost. `expected` is recorded before anything is sent; `found` comes from outside of
    the service: its database, its topics, its log.
    """

    service: str
    expected: dict[str, set[str]] = field(default_factory=dict)
    found: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    problems: list[str] = field(default_factory=list)
    """What else is wrong, such as a row that a duplicate has changed."""
    remarks: list[str] = field(default_factory=list)

    def expect(self, identity: str, *ends: str) -> None:
        self.expected[identity] = set(ends)

    def note(self, end: str, identities: Iterable[str]) -> None:
        for identity in identities:
            self.found[identity].add(end)

    def check(self, what: str, *, right: bool) -> None:
        if not right:
            self.problems.append(what)

    @property
    def lost(self) -> list[str]:
        return [identity for identity in self.expected if not self.found.get(identity)]

    @property
    def unexpected(self) -> list[str]:
        """Found, and never sent."""
        return [identity for identity in self.found if identity not in self.expected]

    @property
    def wrong(self) -> dict[str, str]:
        """Not lost, but with another outcome than expected."""
        return {
            identity: f"{_joined(found)} instead of {_joined(self.expected[identity])}"
            for identity, found in self.found.items()
            if identity in self.expected and found and found != self.expected[identity]
        }

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.unexpected or self.wrong or self.problems)

    def lines(self) -> Iterator[str]:
        ends = Counter(_joined(self.found[identity]) for identity in self.expected if self.found.get(identity))
        yield f"{self.service}: {'right' if self.is_right else 'WRONG'}"
        yield f"  sent       {len(self.expected)}"
        for end, count in sorted(ends.items()):
            yield f"    {count:>6}  {end}"
        for name, found in (("lost", self.lost), ("wrong", self.wrong), ("unexpected", self.unexpected)):
            yield f"  {name:<10} {len(found)}{_some(found)}"
        yield from (f"  {remark}" for remark in self.remarks)
        yield from (f"  problem    {problem}" for problem in self.problems)


def _joined(ends: Iterable[str]) -> str:
    return " + ".join(sorted(ends))


def _some(found: list[str] | Mapping[str, str]) -> str:
    shown = [f"{one}: {found[one]}" if isinstance(found, Mapping) else one for one in list(found)[:MAX_NAMED]]
    return f"  ({'; '.join(shown)}{'; …' if len(found) > MAX_NAMED else ''})" if shown else ""
