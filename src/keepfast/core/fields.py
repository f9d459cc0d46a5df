"""How a field of a policy is declared: what it takes, its bounds, its text and its environment variables, in one place.

    max_retries: Annotated[int | None, Range(0), NoneWord("forever"), Env("RETRY_MAX_RETRIES"), Doc("Retries …")] = 3

A `Policy` checks itself with these declarations; the catalogue of settings, the reference and the options of consumers
are derived from them (`fields_of`). Choices are the values of a `Literal`. Annotations stay text until `fields_of`
resolves those of a class, when its first policy is made: importing a policy costs nothing more.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    Protocol,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from keepfast.core import checks
from keepfast.core.errors import ConfigError

T = TypeVar("T")


class _DerivedDefault:
    def __repr__(self) -> str:
        return "…"


DERIVED: Any = _DerivedDefault()
"""A default that depends on other fields; `Policy._derive` puts the value in its place."""


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, which may be open; `above` excludes `low` itself. Always holds."""

    low: float
    high: float | None = None
    above: bool = False


@dataclass(frozen=True, slots=True)
class Floor:
    """The least value that `rule`, a rule of `keepfast check`, allows. Settings check it unless `unsafe_timings`."""

    low: float
    rule: str


@dataclass(frozen=True, slots=True)
class NoneWord:
    """None is a value of its own (`forever`), not "left out", and is written as this word in files and variables."""

    word: str


@dataclass(frozen=True, slots=True, init=False)
class Env:
    """Environment variables besides `KEEPFAST_<SECTION>_<NAME>`, which wins over them; the first wins over the next."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True, slots=True)
class Doc:
    """What the field is for. A field with a text is a setting; others are not."""

    text: str


@dataclass(frozen=True, slots=True)
class Derived:
    """How the default follows from something else; for the reference."""

    text: str


class InvalidValue(ValueError):
    """The value is not accepted; the message says what would be, and never repeats a secret.

    It is the end of a sentence that starts with the setting's name.
    """


class Kind(Protocol):
    """What a field takes. `check` accepts what it returns."""

    @property
    def expects(self) -> str:
        """For messages and for the reference: `a whole number from 1 to 65,535`."""
        ...

    def parse(self, text: str) -> object:
        """From an environment variable; never called with blank text. Raises InvalidValue."""
        ...

    def check(self, value: object) -> object:
        """From keepfast.toml or code. Raises InvalidValue."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number. `none_word`, where there is one, is written for None."""

    low: int
    high: int | None = None
    none_word: str | None = None

    @property
    def expects(self) -> str:
        return _or_word(checks.range_of("a whole number", self.low, self.high), self.none_word)

    def parse(self, text: str) -> object:
        plain = text.strip().lower()
        if self.none_word is not None and plain == self.none_word:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", plain):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(text)}")
        return self.check(int(plain))

    def check(self, value: object) -> object:
        if self.none_word is not None and (value is None or value == self.none_word):
            return None
        if checks.whole(value, self.low, self.high):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; `above` excludes the lower bound itself."""

    low: float
    high: float | None = None
    above: bool = False
    none_word: str | None = None

    @property
    def expects(self) -> str:
        return _or_word(checks.range_of("a number", self.low, self.high, above=self.above), self.none_word)

    def parse(self, text: str) -> object:
        plain = text.strip().lower()
        if self.none_word is not None and plain == self.none_word:
            return None
        if not re.fullmatch(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})(e[+-]?[0-9]{1,3})?", plain):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(text)}")
        return self.check(float(plain))

    def check(self, value: object) -> object:
        if self.none_word is not None and (value is None or value == self.none_word):
            return None
        if checks.number(value, self.low, self.high, above=self.above):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        return value


def _or_word(expects: str, word: str | None) -> str:
    return expects if word is None else f'{expects}, or "{word}" (None in code)'


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false, with the usual words for them in variables."""

    expects: str = "true or false"

    def parse(self, text: str) -> object:
        match text.strip().lower():
            case "true" | "1" | "yes" | "on":
                return True
            case "false" | "0" | "no" | "off":
                return False
            case _:
                raise InvalidValue(f"must be {self.expects}; got {checks.shown(text)}")

    def check(self, value: object) -> object:
        if not isinstance(value, bool):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words, in upper or lower case."""

    options: tuple[str, ...]

    @property
    def expects(self) -> str:
        return f"one of {', '.join(self.options)}"

    def parse(self, text: str) -> object:
        return self.check(text.strip())

    def check(self, value: object) -> object:
        if isinstance(value, str):
            for option in self.options:
                if option.lower() == value.lower():
                    return option
        raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")


@dataclass(frozen=True, slots=True)
class Text:
    """A text without control characters, not empty unless `may_be_empty`; `rule` says what else is wrong with it."""

    expects: str = "a text"
    rule: Callable[[str], str | None] | None = None
    may_be_empty: bool = False

    def parse(self, text: str) -> object:
        return self.check(text.strip())

    def check(self, value: object) -> object:
        if value == "" and self.may_be_empty:
            return value
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        problem = self.rule(value) if self.rule else None
        if problem:
            raise InvalidValue(problem)
        return value


@dataclass(frozen=True, slots=True)
class NameList:
    """One or several names: separated by commas in text, a list in keepfast.toml and code."""

    expects: str = "a name, or several"
    may_be_empty: bool = False

    def parse(self, text: str) -> object:
        return self.check([part.strip() for part in text.split(",") if part.strip()])

    def check(self, value: object) -> object:
        several = (value,) if isinstance(value, str) else value
        if not isinstance(several, list | tuple) or not (several or self.may_be_empty):
            raise InvalidValue(f"must be {self.expects}; got {checks.shown(value)}")
        for name in several:
            if not isinstance(name, str) or not name.strip() or not name.isprintable():
                raise InvalidValue(f"must be {self.expects}; got {checks.shown(name)} among them")
        return tuple(dict.fromkeys(several))


@dataclass(frozen=True, slots=True)
class PolicyField:
    """What is declared about a field. `default` None: there is none, or it is worked out from something else."""

    name: str
    kind: Kind
    default: object
    doc: str
    aliases: tuple[str, ...] = ()
    floor: Floor | None = None
    derived: str = ""
    accepts_none: bool = False
    """None may be given and means: left out."""

    @property
    def none_is_a_value(self) -> bool:
        return isinstance(self.kind, Whole | Number) and self.kind.none_word is not None


_RESOLVED: Final[dict[type, tuple[PolicyField, ...]]] = {}


def fields_of(policy: type) -> tuple[PolicyField, ...]:
    """The fields of a dataclass that have a `Doc`, in their order. They are resolved once."""
    found = _RESOLVED.get(policy)
    if found is None:
        hints = get_type_hints(policy, include_extras=True)
        declared = ((part, getattr(hints[part.name], "__metadata__", ())) for part in dataclasses.fields(policy))
        found = tuple(_field(part, hints[part.name].__origin__, marks) for part, marks in declared if _mark(marks, Doc))
        _RESOLVED[policy] = found
    return found


def floor_of(policy: type, name: str) -> Floor:
    """Raises KeyError if this field has none."""
    return {one.name: one.floor for one in fields_of(policy) if one.floor is not None}[name]


def _field(part: dataclasses.Field[Any], wanted: Any, marks: tuple[object, ...]) -> PolicyField:
    word = _mark(marks, NoneWord)
    doc, env, derived = _mark(marks, Doc), _mark(marks, Env), _mark(marks, Derived)
    return PolicyField(
        name=part.name,
        kind=_kind(part.name, _without_none(wanted), marks),
        default=_default(part),
        doc=doc.text if doc else "",
        aliases=env.names if env else (),
        floor=_mark(marks, Floor),
        derived=derived.text if derived else "",
        accepts_none=word is None and wanted is not _without_none(wanted),
    )


def _default(part: dataclasses.Field[Any]) -> object:
    if part.default_factory is not dataclasses.MISSING:
        return part.default_factory()
    return None if part.default is dataclasses.MISSING else part.default


def _kind(name: str, wanted: Any, marks: tuple[object, ...]) -> Kind:
    own: Any = next((mark for mark in marks if hasattr(mark, "check")), None)
    bounds, word = _mark(marks, Range), _mark(marks, NoneWord)
    none_word = word.word if word else None
    if own is not None:
        return cast("Kind", own)
    if wanted is bool:
        return Flag()
    if wanted is str:
        return Text()
    if get_origin(wanted) is Literal:
        return Choice(get_args(wanted))
    if wanted is int and bounds is not None:
        return Whole(int(bounds.low), None if bounds.high is None else int(bounds.high), none_word)
    if wanted is float and bounds is not None:
        return Number(bounds.low, bounds.high, bounds.above, none_word)
    raise TypeError(f"{name}: a field of type {wanted} needs a Range, or the kind of its values, in its annotation")


def _without_none(wanted: Any) -> Any:
    if get_origin(wanted) not in {Union, UnionType}:
        return wanted
    left = [one for one in get_args(wanted) if one is not NoneType]
    return left[0] if len(left) == 1 else wanted


def _mark(marks: tuple[object, ...], kind: type[T]) -> T | None:
    return next((mark for mark in marks if isinstance(mark, kind)), None)


class Findings:
    """Collects what is wrong with one policy, so that all of it is reported at once."""

    def __init__(self, section: str) -> None:
        self._section = section
        self._wrong: set[str] = set()
        self._found: list[str] = []

    def check(self, policy: object, field: PolicyField) -> None:
        """Note what is wrong with this field's value, or store it as its kind writes it."""
        value = getattr(policy, field.name)
        if value is None and field.accepts_none:
            return
        try:
            checked = field.kind.check(value)
            if isinstance(value, str) and not isinstance(checked, str):
                raise InvalidValue(f"must be {field.kind.expects}; got a text")  # words and lists are for files
        except InvalidValue as invalid:
            self._wrong.add(field.name)
            self.add(f"{field.name} {invalid}.")
            return
        if checked != value:
            object.__setattr__(policy, field.name, checked)

    def fine(self, *names: str) -> bool:
        """Each of these is right by itself, so that it can be checked how they fit together."""
        return self._wrong.isdisjoint(names)

    def add(self, problem: str) -> None:
        self._found.append(f"{self._section}: {problem}")

    def refuse(self) -> None:
        if self._found:
            raise ConfigError(*self._found)


def _nearest(wrong: str, known: Collection[str]) -> str:
    import difflib

    near = difflib.get_close_matches(wrong, known, n=1)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(sorted(known))}."


class Policy:
    """Base of frozen dataclasses with declared fields. Raises ConfigError, with every problem, for values that do not
    fit their declarations or each other.
    """

    __slots__ = ()
    section: ClassVar[str]
    """What messages call it."""

    def __new__(cls, *_: object, **given: object) -> Self:
        """Raises ConfigError for an option that does not exist, before `__init__` would without advice."""
        known = {part.name for part in dataclasses.fields(cast("Any", cls)) if part.init}
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ConfigError(*(f"{cls.__name__} has no option {name}. {_nearest(name, known)}" for name in unknown))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._derive()
        findings = Findings(self.section)
        for field in fields_of(type(self)):
            findings.check(self, field)
        self._check_together(findings)
        findings.refuse()

    def _derive(self) -> None:
        """Put values in place of defaults that are DERIVED."""

    def _check_together(self, findings: Findings) -> None:
        """Add what is wrong between fields that are right by themselves."""
