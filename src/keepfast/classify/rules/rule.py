"""One rule: which exceptions it matches and how they are classified. Also parses rules from text."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal, get_args

from keepfast.core.checks import shown
from keepfast.core.errors import ConfigError
from keepfast.core.verdicts import Kind

RuleKind = Literal[Kind, "unknown", "not-found"]
"""The kind of a rule's errors; "unknown" and "not-found" leave it to the settings of these names."""

RULE_KINDS: Final[tuple[str, ...]] = (*get_args(Kind), "unknown", "not-found")

Predicate = Callable[[BaseException], object]

_SCHEMES: Final = {
    "http": re.compile(r"[1-5](?:[0-9]{2}|XX)"),
    "sqlstate": re.compile(r"[0-9A-Z]{2}(?:[0-9A-Z]{3})?"),
    "sqlite": re.compile(r"[A-Z_0-9]+"),
    "grpc": re.compile(r"[A-Z_]+"),
    "aws": re.compile(r"[\w.:-]+"),
    "kafka": re.compile(r"[A-Z_0-9]+|retriable"),
    "errno": re.compile(r"E[A-Z0-9]+"),
    "fault": re.compile(r"[a-z_]+"),
}
_EXAMPLES: Final = {
    "http": "http:409 or http:4xx",
    "sqlstate": "sqlstate:23505 or its class, sqlstate:23",
    "sqlite": "sqlite:FULL",
    "grpc": "grpc:UNAVAILABLE",
    "aws": "aws:ThrottlingException",
    "kafka": "kafka:_TRANSPORT",
    "errno": "errno:ECONNREFUSED",
    "fault": "fault:retry",
}
_CASE_SENSITIVE: Final = ("aws", "fault")  # names that are not upper-case
_DOTTED: Final = re.compile(r"(?:[^\W\d]\w*|<locals>)(?:\.(?:[^\W\d]\w*|<locals>))+")
_CODE: Final = re.compile(r"[A-Z0-9][A-Z0-9_]{0,63}")

# Common names of classes whose real name differs.
_ALIASES: Final = {
    "pydantic.ValidationError": "pydantic_core.ValidationError",
    "socket.timeout": "builtins.TimeoutError",
    "socket.error": "builtins.OSError",
    "select.error": "builtins.OSError",
    "asyncio.TimeoutError": "builtins.TimeoutError",
    "concurrent.futures.TimeoutError": "builtins.TimeoutError",
    "IOError": "builtins.OSError",
    "EnvironmentError": "builtins.OSError",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """Classifies exceptions. Of several matching rules, the one for the most derived class decides.

    `match` is an exception class, a key (`http:409`, `sqlstate:23`, `mylib.errors.Busy`), or several of them; a class
    includes its subclasses. `when` is a predicate on the exception; if it raises, the rule does not match. Without
    `code`, the code is derived from the matching key. `outage`: a downstream is unavailable; the record is not bad.
    """

    match: str | type[BaseException] | tuple[str | type[BaseException], ...]
    kind: RuleKind
    _: KW_ONLY
    code: str = ""
    outage: bool = False
    when: Predicate | None = None
    name: str = ""
    standard: str = ""
    """The section of the consumer standard that requires it."""
    why: str = ""
    code_of: Callable[[BaseException], object] | None = None
    """Returns a more specific code for the exception; if it returns None or raises, `code` is used."""
    keys: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        matches = self.match if isinstance(self.match, tuple) else (self.match,)
        keys: list[str] = []
        problems: list[str] = []
        for match in matches:
            try:
                keys.append(name_of(match) if isinstance(match, type) else normal_key(match))
            except ConfigError as error:
                problems.extend(error.problems)
        if not matches:
            problems.append("a rule must match an exception class or a key such as http:409.")
        if self.kind not in RULE_KINDS:
            problems.append(f"the kind of a rule is one of {', '.join(RULE_KINDS)}; got {shown(self.kind)}.")
        if self.code and not _CODE.fullmatch(self.code):
            problems.append(f"the code of a rule is upper-case, like CARD_EXPIRED; got {shown(self.code)}.")
        if problems:
            raise ConfigError(*problems)
        object.__setattr__(self, "keys", tuple(keys))
        object.__setattr__(self, "name", self.name or f"rule for {', '.join(keys[:3])}{' …' if keys[3:] else ''}")


def parse_rule(key: str, value: object) -> Rule:
    """Parse a rule: `"http:409"` and `"retryable"`, or `"retryable outage code=BUSY"`. Raises ConfigError."""
    if not isinstance(value, str):
        raise ConfigError(f"the rule for {shown(key)} must be a string such as 'retryable'; got {shown(value)}.")
    kind, outage, code, problems = "", False, "", []
    for word in value.replace(",", " ").split():
        if word.lower() in RULE_KINDS and not kind:
            kind = word.lower()
        elif word.lower() == "outage":
            outage = True
        elif word.lower().startswith("code="):
            code = word[5:]
        else:
            problems.append(f"has an unknown word {shown(word)}")
    if not kind and not problems:
        problems.append("has no kind")
    if problems:
        raise ConfigError(
            *(
                f"the rule for {shown(key)} {problem}. Write one of {', '.join(RULE_KINDS)}, optionally with"
                " `outage` and `code=NAME`."
                for problem in problems
            )
        )
    try:
        return Rule(normal_key(key), kind, code=code, outage=outage, name=f"setting {key.strip()}")  # type: ignore[arg-type]
    except ConfigError as error:
        raise ConfigError(*(f"the rule for {shown(key)}: {problem}" for problem in error.problems)) from None


def normal_key(text: object) -> str:
    """The canonical form of a key. Raises ConfigError if the text is not a key."""
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{shown(text)} is not a key; write an exception as module.Class, or a key such as http:409.")
    name = text.strip()
    scheme, colon, value = name.partition(":")
    scheme = {"kafkaerror": "kafka", "status": "http", "botocore": "aws"}.get(scheme.lower(), scheme.lower())
    if colon:
        return _normal_code(name, scheme, value.strip())
    name = _ALIASES.get(name, name)
    built_in = getattr(builtins, name, None)
    if isinstance(built_in, type) and issubclass(built_in, BaseException):
        return f"builtins.{name}"
    if not _DOTTED.fullmatch(name):
        raise ConfigError(
            f"{shown(name)} is neither a key nor a built-in exception; write the exception with its module, as in"
            f" mylib.errors.{_last(name)}."
        )
    return name


def _normal_code(text: str, scheme: str, value: str) -> str:
    pattern = _SCHEMES.get(scheme)
    if pattern is None:
        known = ", ".join(f"{name}:" for name in _SCHEMES if name != "fault")
        raise ConfigError(f"{shown(text)} is not a key; the part before the colon must be one of {known}.")
    if scheme not in _CASE_SENSITIVE and value != "retriable":
        value = value.upper()
    if not pattern.fullmatch(value):
        raise ConfigError(f"{shown(text)} is not a key; write it like {_EXAMPLES[scheme]}.")
    return f"{scheme}:{value.replace('XX', 'xx')}" if scheme == "http" else f"{scheme}:{value}"


def name_of(cls: type) -> str:
    """`module.Class` of a class, bypassing its metaclass."""
    try:
        module, qualname = _MODULE(cls), _QUALNAME(cls)
    except AttributeError:  # deleted
        return "?.?"
    if type(module) is not str or type(qualname) is not str:
        return "?.?"
    # confluent-kafka's C module reports its name without the package.
    return f"confluent_kafka.{module}.{qualname}" if module == "cimpl" else f"{module}.{qualname}"


_MODULE: Final[Callable[[type], object]] = type.__dict__["__module__"].__get__
_QUALNAME: Final[Callable[[type], object]] = type.__dict__["__qualname__"].__get__


def default_code(key: str, error: BaseException | None = None) -> str:
    """The code for a rule without one: HTTP_409, SQLSTATE_23505, GRPC_ABORTED, or the class name in upper case."""
    scheme, colon, value = key.partition(":")
    if not colon:
        last = _last(name_of(type(error)) if error is not None else key)
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\W+", "_", last).upper()[:64]
    code = value if scheme == "errno" else f"{scheme}_{value.strip('_')}"
    return re.sub(r"\W+", "_", code).upper()[:64]


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]
