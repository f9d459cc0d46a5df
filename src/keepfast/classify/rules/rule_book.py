"""Looks up the classification of an exception in indexed rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, assert_never

from keepfast.classify.rules.codes import UNHANDLED_EXCEPTION
from keepfast.classify.rules.error_keys import KeyFinder, family_of, is_error
from keepfast.classify.rules.readers import READERS, attribute, retry_after_s
from keepfast.classify.rules.rule import Predicate, Rule, default_code
from keepfast.classify.rules.table import RULES
from keepfast.core.verdicts import Classification, Kind

Unknown = Literal["retry", "dead-letter"]
NotFound = Literal["final", "retry"]

UNKNOWN_RULE: Final = "unknown"
"""The name of the rule if none matches."""

MAX_ERRORS: Final = 256
"""How many errors of one group or chain are read at most; a group may contain millions."""
_MAX_CODE = 100
_WORST_FIRST: Final[tuple[Kind, ...]] = ("halt", "discard", "non-retryable", "retryable")


@dataclass(slots=True)
class Lookup:
    """The settings and the remaining budget of one classification."""

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


KeyedError = tuple[str, BaseException]
_RuleIndex = Mapping[str, tuple[Rule, ...]]


class RuleBook:
    """Indexed rules. Thread-safe.

    `rules` are the user's. They take precedence over the built-in ones; of those for one class, the first match counts.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        own = tuple(rules)
        self.rules: Final = (*own, *RULES)
        self._indexes: Final[tuple[_RuleIndex, ...]] = (_index(own), _index(RULES)) if own else (_index(RULES),)
        self._key_finder: Final = KeyFinder(self._indexes)

    def classify(self, error: BaseException, lookup: Lookup) -> Classification | None:
        """The classification, or None if no rule matches."""
        lookup.left -= 1
        if lookup.left < 0:
            return None
        several = len(self._indexes) > 1
        keys = list(self._key_finder.keys(error, lookup)) if several else self._key_finder.keys(error, lookup)
        for index in self._indexes:
            found = self._search(keys, index, lookup)
            if found is not None:
                return found
        if issubclass(type(error), BaseExceptionGroup):
            return self._worst(error, lookup)
        cause = attribute(error, "__cause__")
        return self.classify(cause, lookup) if is_error(cause) else None

    def of_key(self, key: str, lookup: Lookup) -> Classification | None:
        """The classification of a key; rules with a predicate are skipped.

        A class may be named as its package exports it: `requests.Timeout` for `requests.exceptions.Timeout`.
        """
        keys = [key]
        if ":" not in key:
            package, name = key.partition(".")[0], key.rpartition(".")[2]
            near = (known for index in self._indexes for known in index if known.rpartition(".")[2] == name)
            keys += [known for known in near if known.startswith(f"{package}.")]
        return self._first(((each, index) for index in self._indexes for each in keys), lookup)

    def of_class(self, cls: type[BaseException], lookup: Lookup) -> Classification | None:
        """The classification of a class, without reading an instance; rules with a predicate are skipped."""
        names = [name for step in self._key_finder.plan(cls) for name in step.names]
        return self._first(((name, index) for index in self._indexes for name in names), lookup)

    def schemes(self, cls: type[BaseException] | str) -> tuple[str, ...]:
        """The schemes of the keys that are read from instances before their class decides: ("http",).

        For a class given by name the base classes are unknown.
        """
        if isinstance(cls, str):
            readers = list(READERS.get(cls, ()))
        else:
            readers = [reader for step in self._key_finder.plan(cls) for reader in step.readers]
        return tuple(dict.fromkeys(reader.scheme for reader in readers if reader.scheme))

    def _first(self, keys: Iterable[tuple[str, _RuleIndex]], lookup: Lookup) -> Classification | None:
        for key, index in keys:
            for rule in _candidates(index, key):
                if rule.when is None:
                    return _classification(rule, key, None, lookup)
        return None

    def _search(self, keys: Iterable[KeyedError], index: _RuleIndex, lookup: Lookup) -> Classification | None:
        for key, about in keys:
            candidates = _candidates(index, key) if ":" in key else index.get(key)
            rule = _first_match(candidates, about) if candidates else None
            if rule is not None:
                return _classification(rule, key, about, lookup)
        return None

    def _worst(self, group: BaseException, lookup: Lookup) -> Classification | None:
        """The worst classification of a group: halt, then discard, then non-retryable, then retryable.

        Discard takes precedence over dead-lettering because the data may be such that it must not be copied.
        """
        members = attribute(group, "exceptions")
        if type(members) is not tuple:
            return None
        found = [
            self.classify(member, lookup) or unknown_error(lookup)
            for member in members[: lookup.left]
            if is_error(member)
        ]
        if not found:
            return None
        worst = min(found, key=lambda each: _WORST_FIRST.index(each.kind))
        if worst.kind != "retryable":
            return worst
        known = next((each for each in found if each.rule != UNKNOWN_RULE), worst)
        waits = [each.retry_after_s for each in found if each.retry_after_s is not None]
        return replace(known, outage=any(each.outage for each in found), retry_after_s=max(waits, default=None))


def unknown_error(lookup: Lookup) -> Classification:
    return Classification(kind=lookup.unknown_kind, code=UNHANDLED_EXCEPTION, rule=UNKNOWN_RULE)


def _index(rules: Iterable[Rule]) -> _RuleIndex:
    index: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        for key in dict.fromkeys(rule.keys):
            index[key] = (*index.get(key, ()), rule)
    return index


def _candidates(index: _RuleIndex, key: str) -> tuple[Rule, ...]:
    """The rules for the key, then those for its family."""
    exact, family = index.get(key, ()), family_of(key)
    return exact if family is None else (*exact, *index.get(family, ()))


def _first_match(rules: tuple[Rule, ...], error: BaseException) -> Rule | None:
    for rule in rules:
        if rule.when is None:
            return rule
        if _holds(rule.when, error):
            return rule
    return None


def _holds(predicate: Predicate, error: BaseException) -> bool:
    try:
        return bool(predicate(error))
    except BaseException:  # noqa: BLE001 - a predicate that fails does not match
        return False


def _classification(rule: Rule, key: str, error: BaseException | None, lookup: Lookup) -> Classification:
    kind = lookup.kind_of(rule)
    retryable = kind == "retryable"
    return Classification(
        kind=kind,
        code=_code(rule, key, error),
        rule=rule.name,
        outage=rule.outage and retryable,
        retry_after_s=retry_after_s(error, key, lookup.now_wall) if retryable and error is not None else None,
        standard=rule.standard,
        matched=key,
    )


def _code(rule: Rule, key: str, error: BaseException | None) -> str:
    if rule.code_of is not None and error is not None:
        try:
            value = rule.code_of(error)
            specific = "" if value is None else str(value)[:_MAX_CODE]
        except BaseException:  # noqa: BLE001 - then it has no specific code
            specific = ""
        if specific:
            return specific
    return rule.code or default_code(key, error)
