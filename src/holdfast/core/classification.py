"""What an exception means for its record: tried again, buried, dropped, or a stop. Decided by rules, never by raising.

How a rule is found. The classes of the exception are walked from the most derived to `BaseException`. Before the first
class of a library whose errors are known, the error is *read* (its HTTP status, SQLSTATE, …, and the error that it
wraps), and what was read is looked up before the library's classes are. A user's own subclass therefore goes before what
is read, and what is read before the general class. Rules of the user are all asked before any built-in one.

If nothing is found: a group is what its worst member is; else the cause (`raise … from …`) decides, and so on along the
chain; else the error is unknown and the setting decides. The context of an error (raised *during* another) is not
asked: it may have nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, assert_never

from holdfast.core.rules.codes import UNHANDLED_EXCEPTION
from holdfast.core.rules.reading import READERS, Reader, attribute, wait_of
from holdfast.core.rules.rule import Kind, Rule, made_code, name_of, normal_key
from holdfast.core.rules.table import RULES

Unknown = Literal["retry", "dead-letter"]
NotFound = Literal["final", "retry"]

UNKNOWN_RULE: Final = "unknown"
"""The name that stands for: no rule knows it."""

MOST_ERRORS: Final = 256
"""So many errors of one group or chain are looked at, at most; a group may hold millions."""
_MOST_PLANS = 2048
_LONGEST_CODE = 100
_WORST_FIRST: Final[tuple[Kind, ...]] = ("halt", "discard", "non-retryable", "retryable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """What one failure means, and who says so."""

    kind: Kind
    code: str
    rule: str
    """The name of the rule that decided; UNKNOWN_RULE if none did."""
    outage: bool = False
    """It says that a downstream is away. Always False unless retryable."""
    retry_after_s: float | None = None
    """How long the downstream, or the handler by RetryLater, asks to wait. None unless retryable."""
    standard: str = ""
    """The part of the consumer standard that asks for it, as in "§1.1.1 Network Errors"."""
    matched: str = ""
    """The key by which the rule was found: "http:503", "builtins.ConnectionError"."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What is asked about an exception at one of its classes: how to read it, then under which names it is known."""

    readers: tuple[Reader, ...]
    names: tuple[str, ...]


@dataclass(slots=True)
class _Case:
    """One classification under way."""

    unknown: Unknown
    not_found: NotFound
    now_wall: float | None
    left: int = MOST_ERRORS

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


_Shelf = Mapping[str, tuple[Rule, ...]]


class RuleBook:
    """Rules made ready to be asked. Any thread may ask; what is remembered about classes is the same whoever writes it.

    `rules` are the user's. They go before the built-in ones; of those for one class, the first that fits decides.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        own = tuple(rules)
        self.rules: Final = (*own, *RULES)
        self._shelves: Final[tuple[_Shelf, ...]] = (_shelf(own), _shelf(RULES)) if own else (_shelf(RULES),)
        self._plans: dict[int, tuple[type, tuple[_Step, ...]]] = {}

    def classify(self, error: BaseException, case: _Case) -> Classification | None:
        """None: no rule knows it."""
        case.left -= 1
        if case.left < 0:
            return None
        for shelf in self._shelves:
            found = self._search(error, shelf, case)
            if found is not None:
                return found
        if issubclass(type(error), BaseExceptionGroup):
            return self._worst(error, case)
        cause = attribute(error, "__cause__")
        return self.classify(cause, case) if _is_error(cause) else None

    def of_key(self, key: str, case: _Case) -> Classification | None:
        """What the rules say about a key alone; those that look at the exception itself are left out."""
        return self._first(((key, shelf) for shelf in self._shelves), case)

    def of_class(self, cls: type[BaseException], case: _Case) -> Classification | None:
        """What the rules say about a class, as long as its instances say nothing more about themselves."""
        names = [name for step in self._plan(cls) for name in step.names]
        return self._first(((name, shelf) for shelf in self._shelves for name in names), case)

    def asked(self, cls: type[BaseException]) -> tuple[str, ...]:
        """What instances of the class are asked for before their class decides: ("http",)."""
        readers = [reader for step in self._plan(cls) for reader in step.readers]
        return tuple(dict.fromkeys(reader.asked for reader in readers if reader.asked))

    def _first(self, places: Iterable[tuple[str, _Shelf]], case: _Case) -> Classification | None:
        for key, shelf in places:
            for rule in _candidates(shelf, key):
                if rule.when is None:
                    return _made(rule, key, None, case)
        return None

    def _search(self, error: BaseException, shelf: _Shelf, case: _Case) -> Classification | None:
        for step in self._plan(type(error)):
            for reader in step.readers:
                for key in reader.keys(error) if reader.keys is not None else ():
                    rule = _fitting(_candidates(shelf, key), error)
                    if rule is not None:
                        return _made(rule, key, error, case)
                inner = reader.inner(error) if reader.inner is not None else None
                if _is_error(inner) and case.left > 0:
                    case.left -= 1
                    found = self._search(inner, shelf, case)
                    if found is not None:
                        return found
            for name in step.names:
                rule = _fitting(shelf.get(name, ()), error)
                if rule is not None:
                    return _made(rule, name, error, case)
        return None

    def _worst(self, group: BaseException, case: _Case) -> Classification | None:
        """A halt before all, then what the handler dropped on purpose, then what no retry can help.

        A discard wins over a burial because it may stand for data that must not be copied anywhere.
        """
        members = attribute(group, "exceptions")
        if type(members) is not tuple:
            return None
        found = [self.classify(member, case) or _unknown(case) for member in members[: case.left] if _is_error(member)]
        if not found:
            return None
        worst = min(found, key=lambda each: _WORST_FIRST.index(each.kind))
        if worst.kind != "retryable":
            return worst
        known = next((each for each in found if each.rule != UNKNOWN_RULE), worst)
        waits = [each.retry_after_s for each in found if each.retry_after_s is not None]
        return replace(known, outage=any(each.outage for each in found), retry_after_s=max(waits, default=None))

    def _plan(self, cls: type) -> tuple[_Step, ...]:
        kept = self._plans.get(id(cls))
        if kept is not None and kept[0] is cls:
            return kept[1]
        plan = _planned(cls, self._shelves)
        if len(self._plans) >= _MOST_PLANS:  # classes made at run time must not fill the memory
            self._plans.clear()
        self._plans[id(cls)] = (cls, plan)  # by identity: a metaclass may refuse to be hashed
        return plan


BUILT_IN: Final = RuleBook()


def classify(
    error: BaseException,
    rules: RuleBook = BUILT_IN,
    *,
    unknown: Unknown = "retry",
    not_found: NotFound = "final",
    now_wall: float | None = None,
) -> Classification:
    """Say what the error means. Never raises, whatever the error is or does.

    `unknown` decides about errors that no rule knows, `not_found` about HTTP 404 and its like. `now_wall` (seconds of the
    wall clock) is for Retry-After headers that name a date; without it they are not obeyed.
    """
    case = _Case(unknown, not_found, now_wall)
    try:
        return rules.classify(error, case) or _unknown(case)
    except BaseException:  # noqa: BLE001 - an error that cannot be looked at is unknown; signals arrive in another thread
        return _unknown(case)


def classify_key(
    key: str, rules: RuleBook = BUILT_IN, *, unknown: Unknown = "retry", not_found: NotFound = "final"
) -> Classification:
    """What becomes of an error that says `http:503`, `sqlstate:40P01` or is a `module.Class`, known by that name alone.

    Raises ConfigError if it is no key.
    """
    case = _Case(unknown, not_found, None)
    return rules.of_key(normal_key(key), case) or _unknown(case)


def classify_class(
    cls: type[BaseException], rules: RuleBook = BUILT_IN, *, unknown: Unknown = "retry", not_found: NotFound = "final"
) -> Classification:
    """What becomes of an error of this class that says nothing more about itself (see `RuleBook.asked`)."""
    case = _Case(unknown, not_found, None)
    return rules.of_class(cls, case) or _unknown(case)


def is_retryable_error(error: object) -> bool:
    """Whether it makes sense to try again, by the built-in rules. What is no exception, or unknown, does."""
    return not _is_error(error) or classify(error).kind == "retryable"


def _is_error(value: object) -> TypeIs[BaseException]:
    return issubclass(type(value), BaseException)  # not isinstance: that asks the value itself


def _unknown(case: _Case) -> Classification:
    return Classification(kind=case.unknown_kind, code=UNHANDLED_EXCEPTION, rule=UNKNOWN_RULE)


def _shelf(rules: Iterable[Rule]) -> _Shelf:
    shelf: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        for key in dict.fromkeys(rule.keys):
            shelf[key] = (*shelf.get(key, ()), rule)
    return shelf


def _candidates(shelf: _Shelf, key: str) -> tuple[Rule, ...]:
    """The rules for the key, then those for its family: http:503 is also http:5xx, sqlstate:40P01 also sqlstate:40."""
    exact = shelf.get(key, ())
    if key.startswith("http:"):
        return (*exact, *shelf.get(f"http:{key[5]}xx", ()))
    if key.startswith("sqlstate:"):
        return (*exact, *shelf.get(key[:11], ()))
    return exact


def _fitting(rules: tuple[Rule, ...], error: BaseException) -> Rule | None:
    for rule in rules:
        if rule.when is None:
            return rule
        try:
            if rule.when(error):
                return rule
        except BaseException:  # noqa: BLE001, PERF203 - a predicate that fails has not said yes
            continue
    return None


def _made(rule: Rule, key: str, error: BaseException | None, case: _Case) -> Classification:
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
            closer = "" if told is None else str(told)[:_LONGEST_CODE]
        except BaseException:  # noqa: BLE001 - then it has no closer code
            closer = ""
        if closer:
            return closer
    return rule.code or made_code(key, error)


def _planned(cls: type, shelves: tuple[_Shelf, ...]) -> tuple[_Step, ...]:
    """The steps for a class: a reader stands at the first class of its library, or, as a last resort, at its own."""
    classes = [_names(base) for base in _MRO(cls)]
    packages = [names[0].partition(".")[0] for names in classes]
    readers: dict[int, list[Reader]] = {}
    for place, names in enumerate(classes):
        reader = next((READERS[name] for name in names if name in READERS), None)
        if reader is not None:
            at = place if reader.last_resort else packages.index(packages[place])
            readers.setdefault(at, []).append(reader)
    steps = []
    for place, names in enumerate(classes):
        known = tuple(name for name in names if any(name in shelf for shelf in shelves))
        if known or place in readers:
            steps.append(_Step(tuple(readers.get(place, ())), known))
    return tuple(steps)


_MRO = type.__dict__["__mro__"].__get__
_MOST_PARTS = 12


def _names(cls: type) -> tuple[str, ...]:
    """Its full name, and the shorter ones under which its packages may show it: a.b.c.E is also a.b.E and a.E."""
    full = name_of(cls)
    module, _, qualname = full.rpartition(".") if "<locals>" not in full else ("", "", full)
    parts = module.split(".")[:_MOST_PARTS] if module else []
    return (full, *(f"{'.'.join(parts[:end])}.{qualname}" for end in range(len(parts) - 1, 0, -1)))
