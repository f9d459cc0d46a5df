"""One rule: which exceptions it is for, and what they mean. Also how a rule is written as text."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal, get_args

from keepfast.core.checks import shown
from keepfast.core.errors import ConfigError
from keepfast.core.verdicts import Kind

Says = Literal[Kind, "unknown", "not-found"]
"""What a rule says: a kind, or that the setting for unknown errors, or the one for missing things, decides."""

SAYINGS: Final[tuple[str, ...]] = (*get_args(Kind), "unknown", "not-found")

Predicate = Callable[[BaseException], object]

_SCHEMES: Final = {
    "http": re.compile(r"[1-5](?:[0-9]{2}|XX)"),
    "sqlstate": re.compile(r"[0-9A-Z]{2}(?:[0-9A-Z]{3})?"),
    "grpc": re.compile(r"[A-Z_]+"),
    "aws": re.compile(r"[\w.:-]+"),
    "kafka": re.compile(r"[A-Z_0-9]+|retriable"),
    "errno": re.compile(r"E[A-Z0-9]+"),
    "fault": re.compile(r"[a-z_]+"),
}
_EXAMPLES: Final = {
    "http": "http:409 or http:4xx",
    "sqlstate": "sqlstate:23505 or its class, sqlstate:23",
    "grpc": "grpc:UNAVAILABLE",
    "aws": "aws:ThrottlingException",
    "kafka": "kafka:_TRANSPORT",
    "errno": "errno:ECONNREFUSED",
    "fault": "fault:retry",
}
_AS_WRITTEN: Final = ("aws", "fault")  # whose names are not in capitals
_DOTTED: Final = re.compile(r"(?:[^\W\d]\w*|<locals>)(?:\.(?:[^\W\d]\w*|<locals>))+")
_CODE: Final = re.compile(r"[A-Z0-9][A-Z0-9_]{0,63}")

# Names under which people know a class that calls itself something else.
_KNOWN_AS: Final = {
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
    """Which exceptions, and what they mean. Of several that fit, the one for the most derived class decides.

    `match` is an exception class, a key (`http:409`, `sqlstate:23`, `mylib.errors.Busy`), or several of them; a class
    stands for its subclasses, too. `when` narrows it: it gets the exception, and one that raises means no. Without a
    `code` one is made from the key that fitted. `outage` says that a downstream is away, not that a record is bad.
    """

    match: str | type[BaseException] | tuple[str | type[BaseException], ...]
    kind: Says
    _: KW_ONLY
    code: str = ""
    outage: bool = False
    when: Predicate | None = None
    name: str = ""
    standard: str = ""
    """The part of the consumer standard that asks for it."""
    why: str = ""
    code_of: Callable[[BaseException], object] | None = None
    """Finds a closer code in the exception; None, or an error of its own, leaves `code`."""
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
            problems.append("a rule must match something: an exception class or a key such as http:409.")
        if self.kind not in SAYINGS:
            problems.append(f"a rule says one of {', '.join(SAYINGS)}; got {shown(self.kind)}.")
        if self.code and not _CODE.fullmatch(self.code):
            problems.append(f"a rule's code is in capitals, like CARD_EXPIRED; got {shown(self.code)}.")
        if problems:
            raise ConfigError(*problems)
        object.__setattr__(self, "keys", tuple(keys))
        object.__setattr__(self, "name", self.name or f"rule for {', '.join(keys[:3])}{' …' if keys[3:] else ''}")


def parse_rule(key: str, value: object) -> Rule:
    """A rule from its text: `"http:409"` and `"retryable"`, or `"retryable outage code=BUSY"`. Raises ConfigError."""
    if not isinstance(value, str):
        raise ConfigError(f"the rule for {shown(key)} must be a text such as 'retryable'; got {shown(value)}.")
    kind, outage, code, problems = "", False, "", []
    for word in value.replace(",", " ").split():
        if word.lower() in SAYINGS and not kind:
            kind = word.lower()
        elif word.lower() == "outage":
            outage = True
        elif word.lower().startswith("code="):
            code = word[5:]
        else:
            problems.append(f"does not understand {shown(word)}")
    if not kind and not problems:
        problems.append("does not say what the error means")
    if problems:
        raise ConfigError(
            *(
                f"the rule for {shown(key)} {problem}. Write one of {', '.join(SAYINGS)}; after it, if you like,"
                " `outage` and `code=NAME`."
                for problem in problems
            )
        )
    try:
        return Rule(normal_key(key), kind, code=code, outage=outage, name=f"setting {key.strip()}")  # type: ignore[arg-type]
    except ConfigError as error:
        raise ConfigError(*(f"the rule for {shown(key)}: {problem}" for problem in error.problems)) from None


def normal_key(text: object) -> str:
    """A key as the rules have it. Raises ConfigError if it can be none."""
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"{shown(text)} is no key; write an exception as module.Class, or a key such as http:409.")
    told = text.strip()
    scheme, colon, value = told.partition(":")
    scheme = {"kafkaerror": "kafka", "status": "http", "botocore": "aws"}.get(scheme.lower(), scheme.lower())
    if colon:
        return _normal_mark(told, scheme, value.strip())
    told = _KNOWN_AS.get(told, told)
    built_in = getattr(builtins, told, None)
    if isinstance(built_in, type) and issubclass(built_in, BaseException):
        return f"builtins.{told}"
    if not _DOTTED.fullmatch(told):
        raise ConfigError(
            f"{shown(told)} is no key, nor an exception of Python itself; write the exception with its module, as in"
            f" mylib.errors.{_last(told)}."
        )
    return told


def _normal_mark(told: str, scheme: str, value: str) -> str:
    pattern = _SCHEMES.get(scheme)
    if pattern is None:
        known = ", ".join(f"{name}:" for name in _SCHEMES if name != "fault")
        raise ConfigError(f"{shown(told)} is no key; what stands before the colon must be one of {known}.")
    if scheme not in _AS_WRITTEN and value != "retriable":
        value = value.upper()
    if not pattern.fullmatch(value):
        raise ConfigError(f"{shown(told)} is no key; write it like {_EXAMPLES[scheme]}.")
    return f"{scheme}:{value.replace('XX', 'xx')}" if scheme == "http" else f"{scheme}:{value}"


def name_of(cls: type) -> str:
    """`module.Class` of a class, read past whatever its metaclass does."""
    try:
        module, qualname = _MODULE(cls), _QUALNAME(cls)
    except AttributeError:  # somebody deleted it
        return "?.?"
    if type(module) is not str or type(qualname) is not str:
        return "?.?"
    # confluent-kafka's C module names itself as if it stood alone.
    return f"confluent_kafka.{module}.{qualname}" if module == "cimpl" else f"{module}.{qualname}"


_MODULE: Final[Callable[[type], object]] = type.__dict__["__module__"].__get__
_QUALNAME: Final[Callable[[type], object]] = type.__dict__["__qualname__"].__get__


def made_code(key: str, error: BaseException | None = None) -> str:
    """The code for a rule that brings none: HTTP_409, SQLSTATE_23505, GRPC_ABORTED, or the class's name in capitals."""
    scheme, colon, value = key.partition(":")
    if not colon:
        last = _last(name_of(type(error)) if error is not None else key)
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\W+", "_", last).upper()[:64]
    made = value if scheme == "errno" else f"{scheme}_{value.strip('_')}"
    return re.sub(r"\W+", "_", made).upper()[:64]


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]
