"""The rules made ready to be asked: from an exception to its classification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, assert_never

from keepfast.classify.rules.codes import UNHANDLED_EXCEPTION
from keepfast.classify.rules.reading import READERS, attribute, wait_of
from keepfast.classify.rules.rule import Predicate, Rule, made_code
from keepfast.classify.rules.seeking import Seeker, is_error, wider
from keepfast.classify.rules.table import RULES
from keepfast.core.verdicts import Classification, Kind

Unknown = Literal["retry", "dead-letter"]
NotFound = Literal["final", "retry"]

UNKNOWN_RULE: Final = "unknown"
"""The name that stands for: no rule knows it."""

MAX_ERRORS: Final = 256
"""So many errors of one group or chain are looked at, at most; a group may hold millions."""
_MAX_CODE = 100
_WORST_FIRST: Final[tuple[Kind, ...]] = ("halt", "discard", "non-retryable", "retryable")


@dataclass(slots=True)
class Lookup:
    """One classification under way."""

    unknown: Unknown
    not_found: NotFound
    now_wall: float | None
    left: int = MAX_ERRORS

    def kind_of(self, rule: Rule) -> Kind:
        match rule.kind:
            case "unknown":
                return self.unknown_kind
            case "not-found":
                return "retryable" if self.not_found == "retry" else "non-retryable"
            case kind:
                return kind

    @property
    def unknown_kind(self) -> Kind:
        match self.unknown:
            case "retry":
                return "retryable"
            case "dead-letter":
                return "non-retryable"
            case other:
                assert_never(other)


Known = tuple[str, BaseException]
_Shelf = Mapping[str, tuple[Rule, ...]]


class RuleBook:
    """Rules made ready to be asked. Any thread may ask; what is remembered about classes is the same whoever writes it.

    `rules` are the user's. They go before the built-in ones; of those for one class, the first that fits decides.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        own = tuple(rules)
        self.rules: Final = (*own, *RULES)
        self._shelves: Final[tuple[_Shelf, ...]] = (_shelf(own), _shelf(RULES)) if own else (_shelf(RULES),)
        self._seeker: Final = Seeker(self._shelves)

    def classify(self, error: BaseException, case: Lookup) -> Classification | None:
        """None: no rule knows it."""
        case.left -= 1
        if case.left < 0:
            return None
        several = len(self._shelves) > 1
        keys = list(self._seeker.keys(error, case)) if several else self._seeker.keys(error, case)
        for shelf in self._shelves:
            found = self._search(keys, shelf, case)
            if found is not None:
                return found
        if issubclass(type(error), BaseExceptionGroup):
            return self._worst(error, case)
        cause = attribute(error, "__cause__")
        return self.classify(cause, case) if is_error(cause) else None

    def of_key(self, key: str, case: Lookup) -> Classification | None:
        """What the rules say about a key alone; those that look at the exception itself are left out.

        A class may be named as its package shows it: `requests.Timeout` for `requests.exceptions.Timeout`.
        """
        keys = [key]
        if ":" not in key:
            package, name = key.partition(".")[0], key.rpartition(".")[2]
            near = (known for shelf in self._shelves for known in shelf if known.rpartition(".")[2] == name)
            keys += [known for known in near if known.startswith(f"{package}.")]
        return self._first(((each, shelf) for shelf in self._shelves for each in keys), case)

    def of_class(self, cls: type[BaseException], case: Lookup) -> Classification | None:
        """What the rules say about a class, as long as its instances say nothing more about themselves."""
        names = [name for step in self._seeker.plan(cls) for name in step.names]
        return self._first(((name, shelf) for shelf in self._shelves for name in names), case)

    def asked(self, cls: type[BaseException] | str) -> tuple[str, ...]:
        """What instances of the class are asked for before their class decides: ("http",). A name knows no bases."""
        if isinstance(cls, str):
            readers = list(READERS.get(cls, ()))
        else:
            readers = [reader for step in self._seeker.plan(cls) for reader in step.readers]
        return tuple(dict.fromkeys(reader.asked for reader in readers if reader.asked))

    def _first(self, places: Iterable[tuple[str, _Shelf]], case: Lookup) -> Classification | None:
        for key, shelf in places:
            for rule in _candidates(shelf, key):
                if rule.when is None:
                    return _made(rule, key, None, case)
        return None

    def _search(self, keys: Iterable[Known], shelf: _Shelf, case: Lookup) -> Classification | None:
        for key, about in keys:
            candidates = _candidates(shelf, key) if ":" in key else shelf.get(key)
            rule = _fitting(candidates, about) if candidates else None
            if rule is not None:
                return _made(rule, key, about, case)
        return None

    def _worst(self, group: BaseException, case: Lookup) -> Classification | None:
        """A halt before all, then what the handler dropped on purpose, then what no retry can help.

        A discard wins over a burial because it may stand for data that must not be copied anywhere.
        """
        members = attribute(group, "exceptions")
        if type(members) is not tuple:
            return None
        found = [
            self.classify(member, case) or unknown_error(case) for member in members[: case.left] if is_error(member)
        ]
        if not found:
            return None
        worst = min(found, key=lambda each: _WORST_FIRST.index(each.kind))
        if worst.kind != "retryable":
            return worst
        known = next((each for each in found if each.rule != UNKNOWN_RULE), worst)
        waits = [each.retry_after_s for each in found if each.retry_after_s is not None]
        return replace(known, outage=any(each.outage for each in found), retry_after_s=max(waits, default=None))


def unknown_error(case: Lookup) -> Classification:
    return Classification(kind=case.unknown_kind, code=UNHANDLED_EXCEPTION, rule=UNKNOWN_RULE)


def _shelf(rules: Iterable[Rule]) -> _Shelf:
    shelf: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        for key in dict.fromkeys(rule.keys):
            shelf[key] = (*shelf.get(key, ()), rule)
    return shelf


def _candidates(shelf: _Shelf, key: str) -> tuple[Rule, ...]:
    """The rules for the key, then those for its family."""
    exact, family = shelf.get(key, ()), wider(key)
    return exact if family is None else (*exact, *shelf.get(family, ()))


def _fitting(rules: tuple[Rule, ...], error: BaseException) -> Rule | None:
    for rule in rules:
        if rule.when is None:
            return rule
        if _says_yes(rule.when, error):
            return rule
    return None


def _says_yes(predicate: Predicate, error: BaseException) -> bool:
    try:
        return bool(predicate(error))
    except BaseException:  # noqa: BLE001 - whose code fails has not said yes
        return False


def _made(rule: Rule, key: str, error: BaseException | None, case: Lookup) -> Classification:
    kind = case.kind_of(rule)
    again = kind == "retryable"
    return Classification(
        kind=kind,
        code=_code(rule, key, error),
        rule=rule.name,
        outage=rule.outage and again,
        retry_after_s=wait_of(error, key, case.now_wall) if again and error is not None else None,
        standard=rule.standard,
        matched=key,
    )


def _code(rule: Rule, key: str, error: BaseException | None) -> str:
    if rule.code_of is not None and error is not None:
        try:
            told = rule.code_of(error)
            closer = "" if told is None else str(told)[:_MAX_CODE]
        except BaseException:  # noqa: BLE001 - then it has no closer code
            closer = ""
        if closer:
            return closer
    return rule.code or made_code(key, error)
