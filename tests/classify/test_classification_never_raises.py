"""Whatever an exception is, does or holds, it is classified, quickly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from hypothesis import example, given
from hypothesis import strategies as st

from keepfast.classify.classification import Rule, RuleBook, classify, is_retryable_error
from keepfast.classify.rules import RULES
from keepfast.classify.rules.readers import MAX_WAIT_S, READERS, parse_retry_after
from keepfast.classify.rules.rule_book import Lookup
from tests.classify.errors import NOW_WALL
from tests.support.processor_time import Stopwatch

KINDS = {"retryable", "non-retryable", "discard", "halt"}
READ = (
    *("response", "status_code", "status", "code", "headers", "sqlstate", "pgcode", "orig", "reason", "args", "errno"),
    *("fault", "retriable", "message", "retry_after", "after_s", "http_status", "exceptions", "trailing_metadata"),
    *("__cause__", "__context__", "__class__", "__module__", "__dict__", "__qualname__", "errors", "error_count"),
)
NAMES = sorted({name for name in (*READERS, *(key for rule in RULES for key in rule.keys)) if ":" not in name})
BOOK = RuleBook([Rule(Exception, "retryable", when=lambda error: error.nonsense)])  # type: ignore[attr-defined]


class Spite:
    """Raises whatever is done to it."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt

    def __bool__(self) -> bool:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __call__(self, *_: object) -> Any:
        raise SystemExit

    def __iter__(self) -> Iterator[object]:
        raise GeneratorExit

    def __len__(self) -> int:
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Odd(int):
    def __index__(self) -> int:
        raise RuntimeError

    __int__ = __index__


class OddText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


class SpitefulMeta(type):
    @property
    def __mro__(cls) -> tuple[type, ...]:
        raise RuntimeError

    def __hash__(cls) -> int:
        raise RuntimeError

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__mro__", "__module__", "__name__", "__qualname__"):
            raise RuntimeError
        return super().__getattribute__(name)


class Hidden(Exception, metaclass=SpitefulMeta):
    """A class that tells nothing about itself."""


def raising(kind: type[BaseException]) -> Any:
    def read(_: object) -> Any:
        raise kind

    return property(read)


class Answers:
    """Has every attribute, all of them the same value; answers every call with it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __getattr__(self, name: str) -> Any:
        return self.value

    def __call__(self, *_: object) -> Any:
        return self.value


# What hypothesis draws are recipes: it looks closely at what it draws, and these do not like to be looked at.
ODDITIES: dict[str, Callable[[], object]] = {
    "huge": lambda: 10**400,
    "long": lambda: "x" * 100_000,
    "state": lambda: "40P01",
    "odd": lambda: Odd(503),
    "odd text": lambda: OddText("503"),
    "spite": Spite,
    "error": ValueError,
    "group": lambda: ExceptionGroup("g", [Hidden()]),
    "raises KeyboardInterrupt": lambda: raising(KeyboardInterrupt),
    "raises RuntimeError": lambda: raising(RuntimeError),
    "raises RecursionError": lambda: raising(RecursionError),
}
WRAPPERS: dict[str, Callable[[Any], object]] = {
    "answers": Answers,
    "call": lambda value: lambda *_: value,
    "pair": lambda value: (value, value),
    "get": lambda value: dict.fromkeys(("Error", "Code", "ResponseMetadata", "HTTPHeaders", "retry-after"), value),
}
BASES: dict[str, type[BaseException]] = {
    "Hidden": Hidden,
    **{base.__name__: base for base in (Exception, BaseException, OSError, ValueError, RuntimeError, ConnectionError)},
}
Recipe = tuple[object, tuple[str, ...]]

recipes = st.tuples(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(300, 599),
        st.floats(),
        st.text(max_size=30),
        st.binary(max_size=5),
        st.sampled_from(sorted(ODDITIES)),
    ),
    st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=4).map(tuple),
)


def made(recipe: Recipe) -> object:
    """A value, perhaps an oddity, inside any number of wrappings."""
    value, wrappers = recipe
    if isinstance(value, str) and value in ODDITIES:
        value = ODDITIES[value]()
    for name in wrappers:
        value = WRAPPERS[name](value)
    return value


@given(
    name=st.sampled_from(NAMES),
    base_name=st.sampled_from(sorted(BASES)),
    attributes=st.dictionaries(st.sampled_from(READ), recipes, max_size=6),
    arguments=st.lists(recipes, max_size=3),
    cause=st.one_of(st.none(), st.sampled_from([ValueError(), ConnectionError()])),
)
@example(name="somewhere.Unknown", base_name="Exception", attributes={}, arguments=[], cause=None)
def test_an_exception_of_any_make_is_classified(
    name: str,
    base_name: str,
    attributes: dict[str, Recipe],
    arguments: list[Recipe],
    cause: BaseException | None,
) -> None:
    """It calls itself like a class that rules know, so that everything about it is read."""
    base = BASES[base_name]
    module, _, qualname = name.rpartition(".")
    own = {"__module__": module, "__qualname__": qualname, "__init__": lambda self, *_: None}
    namespace = {attribute: made(recipe) for attribute, recipe in attributes.items()}
    metaclass: Callable[..., Any] = type(base)
    try:
        error: BaseException = metaclass(qualname, (base,), {**own, **namespace})(*map(made, arguments))
        BaseException.__dict__["__cause__"].__set__(error, cause)
    except (TypeError, ValueError, RuntimeError):
        return  # Python itself refuses such a class
    for book in (BOOK, RuleBook()):
        for unknown in ("retry", "dead-letter"):
            result = classify(error, book, unknown=unknown, now_wall=NOW_WALL)
            assert result.kind in KINDS
            assert result.code
            assert result.retry_after_s is None or result.kind == "retryable"
            assert not result.outage or result.kind == "retryable"
        book.classify(error, Lookup("retry", "final", NOW_WALL))  # not even inside the last net
    assert is_retryable_error(error) in (True, False)


@given(
    members=st.lists(
        st.sampled_from(["ValueError", "ConnectionError", "Hidden", "RuntimeError"]), min_size=1, max_size=400
    ),
    depth=st.integers(0, 60),
)
def test_groups_of_any_size_and_depth_are_classified(members: list[str], depth: int) -> None:
    group: BaseException = BaseExceptionGroup("g", [BASES[name]() for name in members])
    for _ in range(depth):
        group = BaseExceptionGroup("g", [group, *([] if depth % 2 else [RuntimeError()])])
    assert classify(group).kind in KINDS


def test_a_group_that_holds_itself_many_times_over_ends() -> None:
    group: Exception = ExceptionGroup("g", [ConnectionError()])
    for _ in range(40):
        group = ExceptionGroup("g", [group] * 10)  # 10**40 members, if anybody counted
    watch = Stopwatch()
    with watch.measured():
        assert classify(group).kind == "retryable"
    assert watch.slowest_cpu_s < 1


def test_a_class_with_very_many_bases_is_classified() -> None:
    cls: type[Exception] = ValueError
    for number in range(400):
        cls = type(f"Derived{number}", (cls,), {})
    watch = Stopwatch()
    with watch.measured():
        assert classify(cls()).code == "VALUE_INVALID"
    assert watch.slowest_cpu_s < 1


def test_classes_made_at_run_time_do_not_fill_the_memory() -> None:
    book = RuleBook()
    for number in range(5000):
        classify(type(f"Made{number}", (Exception,), {})(), book)
    assert len(book._key_finder._plans) <= 2048


@given(st.one_of(st.text(max_size=40), st.from_regex(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")))
def test_retry_after_of_any_kind_is_a_bounded_time_or_nothing(value: object) -> None:
    for now_wall in (None, 0.0, NOW_WALL, 1e300):
        wait_s = parse_retry_after(value, now_wall)
        assert wait_s is None or 0 <= wait_s <= MAX_WAIT_S


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("1.5", 1.5),
        ("999999999999", MAX_WAIT_S),
        ("-5", None),
        ("1e3", None),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("Tuesday, 14-Nov-23 22:13:30 GMT", 10),
        ("Tue, 14 Nov 2023 23:13:30 +0100", 10),
        ("Tue, 14 Nov 2023 22:13:30 -0000", 10),
        ("Tue, 14 Nov 9999 22:13:30 GMT", MAX_WAIT_S),
        ("Tue, 99 Nov 2023 22:13:30 GMT", None),
    ],
)
def test_retry_after(value: str, wait_s: float | None) -> None:
    assert parse_retry_after(value, NOW_WALL) == wait_s


def test_a_date_needs_a_clock() -> None:
    assert parse_retry_after("Tue, 14 Nov 2023 22:13:30 GMT", None) is None


def _http() -> requests.HTTPError:
    response = requests.Response()
    response.status_code = 503
    response.headers["Retry-After"] = "120"
    return requests.HTTPError(response=response)


@pytest.mark.timing
@pytest.mark.parametrize("error", [ValueError(), RuntimeError(), ConnectionRefusedError(111, "x"), _http()], ids=repr)
@pytest.mark.parametrize("book", [RuleBook(), BOOK], ids=["built-in", "with a user's rule"])
def test_it_takes_less_than_20_microseconds(error: Exception, book: RuleBook) -> None:
    """Processor time, best of several rounds: how busy the machine is otherwise is not its fault."""
    best = float("inf")
    for _ in range(60):
        begun = time.process_time()
        for _ in range(500):
            classify(error, book, now_wall=NOW_WALL)
        best = min(best, (time.process_time() - begun) / 500)
    assert best < 20e-6
