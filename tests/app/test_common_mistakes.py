"""Mistakes that newcomers make in code and settings: each ends in one sentence that says what to do.

Those that are typed in a terminal are in tests/cli/test_cli_common_mistakes.py.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from keepfast import (
    App,
    BatchContext,
    Context,
    DeadLettered,
    Halted,
    LifecycleError,
    Pattern,
    Provide,
    RetryPolicy,
    Router,
)
from keepfast.app.assembly import specs_of
from keepfast.core.errors import ConfigError
from keepfast.core.retry_topics import RetryTopics
from keepfast.testing.harness import harness


class Pool: ...


@dataclass
class Pools:
    reads: Pool
    writes: Pool


@dataclass
class A:
    id: str


@dataclass
class B:
    id: str


class Handlers:
    def charge(self, order: dict[str, Any]) -> None: ...


def work(order: dict[str, Any]) -> None: ...


MISTAKES: dict[str, tuple[Callable[[App], object], str]] = {}


def mistake(sentence: str) -> Callable[[Callable[[App], object]], Callable[[App], object]]:
    """The function below is what a user wrote; the sentence is what it ends in."""

    def register(written: Callable[[App], object]) -> Callable[[App], object]:
        MISTAKES[written.__name__] = (written, sentence)
        return written

    return register


def start(app: App, resources: object = None, **variables: str) -> None:
    """What a start checks before it asks a broker."""
    specs_of(app.chosen(), app.settings(environ=variables, cwd=Path("/nonexistent")), resources)


def start_work(app: App, **variables: str) -> None:
    app.consumer("t")(work)
    start(app, **variables)


# -- handlers


@mistake("handler charge() takes no value; declare one annotated parameter, such as `value: bytes`")
def handler_without_arguments(app: App) -> None:
    @app.consumer("t")
    def charge() -> None: ...


@mistake(
    "handler charge(), parameter 'order': has no annotation; write `bytes` for the raw value, or one of: "
    "bytes, str, dict[str, Any], int, float, bool, a dataclass, a TypedDict, a msgspec.Struct or a "
    "pydantic model, each also with `| None` to receive tombstones"
)
def handler_without_annotation(app: App) -> None:
    @app.consumer("t")
    def charge(order) -> None: ...  # type: ignore[no-untyped-def]

    start(app)


@mistake(
    "handler charge(), parameter 'order': cannot decode a record into socket; accepted are: bytes, str, "
    "dict[str, Any], int, float, bool, a dataclass, a TypedDict, a msgspec.Struct or a pydantic model, "
    "each also with `| None` to receive tombstones"
)
def annotation_that_no_record_can_become(app: App) -> None:
    @app.consumer("t")
    def charge(order: socket.socket) -> None: ...

    start(app)


@mistake(
    "handler charge(): the annotations of order cannot be resolved (name 'Missing' is not defined); "
    "import their names at run time, not only under TYPE_CHECKING"
)
def annotation_that_is_not_imported(app: App) -> None:
    @app.consumer("t")
    def charge(order: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821


@mistake(
    "handler charge(), parameter 'orders': `list` has no element type; write `list[bytes]`, or one of: "
    "bytes, str, dict[str, Any], int, float, bool, a dataclass, a TypedDict, a msgspec.Struct or a "
    "pydantic model, each also with `| None` to receive tombstones"
)
def list_without_element_type(app: App) -> None:
    @app.consumer("t", idempotent=True)
    def charge(orders: list) -> None: ...  # type: ignore[type-arg]

    start(app)


@mistake("handler charge() takes one record; annotate ctx with Context")
def context_of_a_batch_for_one_record(app: App) -> None:
    @app.consumer("t")
    def charge(order: dict[str, Any], ctx: BatchContext) -> None: ...


@mistake(
    "handler charge() takes *args or **kwargs; declare its parameters one by one, with annotations. If it is the "
    "function inside a decorator, put @functools.wraps(…) above it"
)
def handler_with_variable_arguments(app: App) -> None:
    @app.consumer("t")
    def charge(*args: Any) -> None: ...


@mistake("handler Handlers is a class; pass a function, or an instance whose class defines __call__")
def handler_that_is_a_class(app: App) -> None:
    app.consumer("t")(Handlers)


@mistake("handler charge() contains `yield`, so calling it runs nothing; remove `yield`, and return when done")
def handler_that_is_a_generator(app: App) -> None:
    @app.consumer("t")
    def charge(order: dict[str, Any]) -> Iterator[None]:
        yield


@mistake("handler charge() is an unbound method; pass a bound one, as in `Handlers().charge`")
def handler_that_is_an_unbound_method(app: App) -> None:
    app.consumer("t")(Handlers.charge)


# -- topics, names and options


@mistake(
    "'audit.*' is no name of a topic. For all topics whose names match a regular expression, write "
    '@app.consumer(Pattern(r"audit.*")).'
)
def regex_as_the_name_of_a_topic(app: App) -> None:
    app.consumer("audit.*")(work)


@mistake(
    "Pattern 'audit.(' is no regular expression of Python's re: missing ), unterminated subpattern at "
    "position 6; write a backslash before what is meant literally."
)
def pattern_that_is_no_regex(app: App) -> None:
    app.consumer(Pattern("audit.("))(work)


@mistake(
    "For all topics whose names match a regular expression, write "
    '@app.consumer(Pattern(r"audit.*")), with the Pattern of keepfast.'
)
def regex_that_is_compiled(app: App) -> None:
    app.consumer(re.compile("audit.*"))(work)  # type: ignore[arg-type]


@mistake(
    "@app.consumer takes the names of topics, one by one, in brackets of its own: "
    '@app.consumer("orders.payment.v1"), or @app.consumer("a", "b"); or one dict with the type of each: '
    '@app.consumer({"a": A, "b": B}).'
)
def topics_in_a_list(app: App) -> None:
    app.consumer(["a", "b"])(work)  # type: ignore[arg-type]


@mistake(
    "handler charge(), parameter 'order': records of the topic b.v1 become B, which the annotation does "
    "not take; write A | B"
)
def types_of_topics_that_the_annotation_does_not_have(app: App) -> None:
    @app.consumer({"a.v1": A, "b.v1": B})
    def charge(order: A) -> None: ...

    start(app)


@mistake("consumer work: there is no topic to consume. Name one in code, or set KEEPFAST_CONSUMERS_WORK_TOPICS.")
def consumer_without_topic(app: App) -> None:
    app.consumer()(work)
    start(app)


@mistake("App 'shop' has two consumers named 'work'; give one of them name=….")
def two_consumers_of_one_name(app: App) -> None:
    app.consumer("a")(work)
    app.consumer("b")(work)


@mistake(
    "consumers work, other: all use the group 'shop', so each would stop the others at every rebalance. "
    "Give each a group of its own."
)
def two_consumers_with_one_group(app: App) -> None:
    app.consumer("a", group="shop")(work)
    app.consumer("a", group="shop", name="other")(work)
    start(app)


@mistake("code, consumer work: oder: there is no setting or section of a consumer of this name. Did you mean order?")
def option_with_a_typo(app: App) -> None:
    app.consumer("t", oder="key")(work)  # type: ignore[call-arg]
    start(app)


@mistake(
    "filter of @app.consumer must be a plain function of a RawRecord; got 'login'. Write it as in "
    'filter=lambda record: record.header("type") == b"login".'
)
def filter_that_is_no_function(app: App) -> None:
    app.consumer("t", filter="login")(work)  # type: ignore[arg-type]


@mistake("code, consumer work: retry.profile: there is no retry profile 'finacial'. Did you mean financial?")
def retry_profile_that_is_not_there(app: App) -> None:
    app.consumer("t", retry="finacial")(work)
    start(app)


@mistake(
    "consumer work: commit.mode is interval (code, consumer work: commit.mode), so a crash repeats "
    "records that were finished. Set idempotent=True in code if the handler can bear that, give it an inbox, or use "
    "commit.mode each."
)
def commits_at_intervals_of_a_handler_that_is_not_idempotent(app: App) -> None:
    app.consumer("t", commit="interval")(work)
    start(app)


@mistake(
    "consumer work: retry_topics (code, consumer work: retry_topics.delays) let other records overtake "
    "one that failed, and order is key. Say retry_topics.allow_reorder=true if the handler can bear that,"
    " or order none, or remove the delays."
)
def retry_topics_that_break_the_order(app: App) -> None:
    app.consumer("t", order="key", retry_topics=RetryTopics(delays=("1m",)))(work)
    start(app)


@mistake(
    "code, consumer work: dlq: there is no setting or section of a consumer of this name. Did you mean dead_letter?"
)
def option_with_its_name_elsewhere(app: App) -> None:
    app.consumer("t", dlq="t.dlq")(work)  # type: ignore[call-arg]
    start(app)


@mistake("code: kafka.bootstrap_servers: there is no setting in kafka of this name. Did you mean brokers?")
def brokers_by_their_name_elsewhere(_: App) -> None:
    start_work(App("shop", kafka={"bootstrap_servers": "kafka:9092"}))


@mistake(
    "code, consumer work: retry: must be a RetryPolicy or a mapping, as in retry=RetryPolicy(max_retries=…); got"
    " something of type int."
)
def number_of_retries_as_the_policy(app: App) -> None:
    app.consumer("t", retry=5)(work)  # type: ignore[arg-type]
    start(app)


@mistake(
    "code, consumer work: timeout: there is no setting or section of a consumer of this name. Did you mean timeout_s?"
)
def option_without_its_unit(app: App) -> None:
    app.consumer("t", timeout=5)(work)  # type: ignore[call-arg]
    start(app)


@mistake("code, consumer work: retires: there is no setting or section of a consumer of this name. Did you mean retry?")
def number_of_retries_misspelt(app: App) -> None:
    app.consumer("t", retires=3)(work)  # type: ignore[call-arg]
    start(app)


@mistake(
    "code, consumer work: retires: there is no setting or section of a consumer of this name. Did you mean retries?"
)
def policies_of_errors_misspelt(app: App) -> None:
    app.consumer("t", retires={"http:409": "none"})(work)  # type: ignore[call-arg]
    start(app)


@mistake("app.include takes a Router; App 'other' is an app of its own.")
def app_that_is_included(app: App) -> None:
    app.include(App("other"))


@mistake("app.include takes a Router, as in router = Router(); got <class 'keepfast.app.router.Router'>.")
def router_without_brackets(app: App) -> None:
    app.include(Router)  # type: ignore[arg-type]


@mistake("RetryPolicy has no option max_retires. Did you mean max_retries?")
def policy_with_a_typo(app: App) -> None:
    app.consumer("t", retry=RetryPolicy(max_retires=3))(work)  # type: ignore[call-arg]


@mistake("code: lifspan: there is no section of this name. Did you mean lifespan?")
def app_with_a_typo(_: App) -> None:
    start_work(App("shop", lifspan={}))


@mistake(
    "environment variable KEEPFAST_KAFKA_BROKER: there is no setting of this name. Did you mean KEEPFAST_KAFKA_BROKERS?"
)
def variable_with_a_typo(app: App) -> None:
    start_work(app, KEEPFAST_KAFKA_BROKER="kafka:9092")


@mistake(
    'environment variable KEEPFAST_RETRY_MAX_RETRIES: must be a whole number from 0 to 1,000,000, or "forever" '
    "(None in code); got 'many'. Fix or remove it; the default is 3."
)
def variable_with_a_wrong_value(app: App) -> None:
    start_work(app, KEEPFAST_RETRY_MAX_RETRIES="many")


@mistake(
    "environment variable KAFKA_BROKERS: must be addresses like kafka-1:9092,kafka-2:9092; number 1 is a "
    "URL: leave out what is before ://. Fix or remove it; the default is localhost:9092."
)
def brokers_as_a_url(app: App) -> None:
    start_work(app, KAFKA_BROKERS="http://kafka:9092")


# -- around handlers


@mistake("middleware log() has no `yield`; write it as a generator that yields once, where the handler runs")
def middleware_without_yield(app: App) -> None:
    @app.middleware  # type: ignore[type-var]
    def log(ctx: Context) -> None: ...


@mistake("@app.middleware is written without brackets, above a generator that yields once; 'http' is not callable.")
def middleware_with_brackets(app: App) -> None:
    app.middleware("http")  # type: ignore[type-var]


@mistake(
    "@app.middleware is written without brackets, above a generator that yields once; there is no function in them."
)
def middleware_with_empty_brackets(app: App) -> None:
    @app.middleware()  # type: ignore[untyped-decorator]
    def around() -> Iterator[None]:
        yield


@mistake("A harness is asynchronous: write `async with harness(app) as h:` in an `async def`.")
def harness_without_async(app: App) -> None:
    app.consumer("t")(work)
    with harness(app):  # type: ignore[attr-defined]
        pass


@mistake(
    "middleware log() is an async generator, but handler work() is a plain function; make the middleware "
    "a plain generator, which works around both kinds, or the handler async def"
)
def async_middleware_around_a_plain_handler(app: App) -> None:
    @app.middleware
    async def log(ctx: Context) -> AsyncIterator[None]:
        yield

    app.consumer("t")(work)
    start(app)


def circle(again: Annotated[int, Provide(lambda: 1)]) -> int:
    return again


circle.__annotations__["again"] = Annotated[int, Provide(circle)]


@mistake("provider circle() needs itself: circle → circle; remove that parameter from one of them")
def provider_that_needs_itself(app: App) -> None:
    @app.consumer("t")
    def charge(order: dict[str, Any], price: Annotated[int, Provide(circle)]) -> None: ...

    start(app)


@mistake(
    "handler charge(), parameter 'client': nothing provides A; there are Context, Pools (Pools), Pool "
    "(Pools.reads), Pool (Pools.writes). Let the app's lifespan yield it, annotate with Annotated[…, "
    "Provide(function)], or make the parameter keyword-only with a default"
)
def resource_that_is_not_there(app: App) -> None:
    @app.consumer("t")
    def charge(order: dict[str, Any], client: A) -> None: ...

    start(app, Pools(Pool(), Pool()))


@mistake(
    "handler charge(), parameter 'pool': several resources are of type Pool (Pools.reads, Pools.writes); "
    "take Pools instead, or Annotated[Pool, Provide(…)] with a function that returns the one"
)
def resource_of_which_there_are_two(app: App) -> None:
    @app.consumer("t")
    def charge(order: dict[str, Any], pool: Pool) -> None: ...

    start(app, Pools(Pool(), Pool()))


@mistake("lifespan=lifespan is a generator function; decorate it with @asynccontextmanager.")
def lifespan_without_its_decorator(_: App) -> None:
    async def lifespan(app: App) -> AsyncIterator[None]:
        yield

    App("shop", lifespan=lifespan)  # type: ignore[arg-type]


@mistake("lifespan=… is a context manager already; pass the function that returns it, without ().")
def lifespan_that_is_called(app: App) -> None:
    @contextmanager
    def lifespan(app: App) -> Iterator[None]:
        yield

    App("shop", lifespan=lifespan(app))


@mistake("lifespan=lifespan must take one argument, the app.")
def lifespan_without_argument(_: App) -> None:
    @contextmanager
    def lifespan() -> Iterator[None]:
        yield

    App("shop", lifespan=lifespan)  # type: ignore[arg-type]


@mistake("The hook report cannot be called with one event (too many positional arguments); write def report(event).")
def hook_without_argument(app: App) -> None:
    @app.on(DeadLettered)
    def report() -> None: ...


@mistake(
    "The hook report takes Halted, and is called with DeadLettered; annotate event with DeadLettered, or write "
    "@app.on(Halted)."
)
def hook_that_takes_another_event(app: App) -> None:
    @app.on(DeadLettered)
    def report(event: Halted) -> None: ...


@mistake(
    "@app.on takes types of events, such as @app.on(DeadLettered, Halted); got <class 'ValueError'>. They"
    " are imported from keepfast."
)
def hook_on_what_is_no_event(app: App) -> None:
    app.on(ValueError)  # type: ignore[arg-type]


# -- apps


@mistake('App takes a name, which groups and topics begin with, as in App("payments"); got None.')
def app_without_a_name(_: App) -> None:
    App(None)  # type: ignore[arg-type]


@mistake("App 'shop' has no consumers; decorate a function with @app.consumer(\"topic\").")
def app_without_consumers(app: App) -> None:
    start(app)


@mistake("App 'shop' has no consumer named 'wrok'; it has work.")
def only_a_consumer_that_is_not_there(app: App) -> None:
    app.consumer("t")(work)
    app.chosen(["wrok"])


@mistake(
    "App 'shop' is not started, so it cannot be used to send: start it with `async with app:`, `with "
    "app:`, `await app.start_async()` or `app.start()`; with consume=False the last two start the "
    "producer alone."
)
def send_before_the_start(app: App) -> None:
    app.send("t", {"id": 1})


@mistake("the header 'keepfast-attempt' is reserved: names must not begin with 'keepfast-'; give it another name")
def send_with_a_header_of_ours(app: App) -> None:
    app.send("t", {"id": 1}, headers={"keepfast-attempt": b"1"})


@mistake(
    "dict cannot become JSON (Encoding objects of type object is unsupported); send bytes, str, None, or "
    "what can: a dict, list, dataclass, msgspec.Struct or pydantic model"
)
def send_of_what_cannot_be_json(app: App) -> None:
    app.send("t", {"client": object()})


@mistake(
    "overrides: no handler or middleware takes what circle() provides; name the function that stands in Provide(…)"
)
def overriding_what_is_no_provider(app: App) -> None:
    app.consumer("t")(work)

    async def story() -> None:
        async with harness(app, overrides={circle: lambda: 1}):
            pass

    asyncio.run(story())


@mistake("App 'shop' is started already; stop it first, or make another App for a second one.")
def app_that_is_started_twice(app: App) -> None:
    app.consumer("t")(work)

    async def story() -> None:
        async with harness(app), harness(app):
            pass

    asyncio.run(story())


@mistake("app.start() would block the event loop that runs here; use `await app.start_async()`.")
def blocking_start_on_an_event_loop(app: App) -> None:
    async def story() -> None:
        app.start()

    asyncio.run(story())


@pytest.mark.parametrize(("written", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_ends_in_a_sentence_that_says_what_to_do(written: Callable[[App], object], sentence: str) -> None:
    with pytest.raises((ConfigError, LifecycleError, ValueError, TypeError)) as caught:
        written(App("shop"))
    assert re.sub(r"^test_common_mistakes\.py:\d+: ", "", str(caught.value)) == sentence
