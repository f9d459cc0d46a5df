"""`@consumer`: where functions become consumers, of an app or of one of its modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, Unpack

from keepfast.app.options import Consumer, ConsumerOptions, Middleware
from keepfast.core.errors import ConfigError
from keepfast.core.inbox import Inbox
from keepfast.core.schemas import AnySchema
from keepfast.core.topic_patterns import Pattern
from keepfast.decode.choice import ByContentType, Decoding, ValueDecoder
from keepfast.decode.signature import inspect_handler, inspect_provider, is_plain
from keepfast.engine.context import BatchContext, Context, RawRecord
from keepfast.inbox.postgres import PostgresInbox
from keepfast.redact.sensitive import CardNumbers

F = TypeVar("F", bound=Callable[..., Any])

_REGEX: Final = re.compile(r"[*+?^$|()\[\]\\]")
"""What names of topics never have, and regular expressions do."""


class Router:
    """Consumers of one part of a service, in a module that does not know the app: `app.include(router)` adds them."""

    def __init__(self) -> None:
        self.consumers: dict[str, Consumer] = {}
        self._takers: list[Callable[[Consumer], None]] = []

    def consumer(
        self,
        *topics: str | Pattern | Mapping[str, Any],
        name: str | None = None,
        sensitive: CardNumbers | None = None,
        middleware: Sequence[Middleware] = (),
        inbox: Inbox | PostgresInbox | None = None,
        filter: Callable[[RawRecord], object] | None = None,  # noqa: A002 - what everybody calls it
        decoder: ValueDecoder | ByContentType | None = None,
        types: Mapping[str, Any] | None = None,
        type_header: str = "type",
        schema: AnySchema | Mapping[str, AnySchema] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[F], F]:
        """Make the function below consume these topics, or those that match a `Pattern`. It stays an ordinary function
        that you can call and test.

        Its group is `<app>.<name>`, its name that of the function by default. `rules` classify errors before the
        built-in ones do (`{TimeoutError: "discard", "http:409": "retryable"}`, or a list of `Rule`), `retries` how
        often and when single errors are tried again (`{"http:429": RetryPolicy(…), MyError: "financial"}`). A record in
        which `sensitive` finds something is discarded before the handler sees it. One for which `filter` returns
        something false is finished before it is decoded: counted, not logged, and the handler does not see it.
        `middleware` is around this handler alone, inside of the app's.
        With an `inbox` it runs inside a database transaction, which it may take, and that notes the record as done.

        A record becomes what the annotation says. With a type for each topic (`{"a.v1": A, "b.v1": B}`), or for each
        value of the header `type_header` (`types={"login": Login}`), it becomes that; the annotation is their union.
        `decoder` is a function from bytes to the value, or a dict of such functions by content type, in which None
        stands for what the annotation says, and `"*"` for all others. `schema` says that values are Avro, Protobuf or
        have a JSON Schema, or are CloudEvents (`Avro()`, `Protobuf()`, `JsonSchema()`, `CloudEvents()`), of all topics
        or, in a dict, of each; the annotation is what they become.

        Raises ConfigError for a function that cannot be a handler.
        """
        pattern = _pattern(topics)
        names, models = _topics([topic for topic in topics if not isinstance(topic, Pattern)])
        if filter is not None and not is_plain(filter):
            raise ConfigError(
                f"filter of @app.consumer must be a plain function of a RawRecord; got {filter!r}. Write it as in"
                ' filter=lambda record: record.header("type") == b"login".'
            )
        by_topic = schema if isinstance(schema, Mapping) else {}
        decoding = Decoding(
            models=models,
            types=types or {},
            type_header=type_header,
            decoder=decoder,
            schemas=by_topic,
            schema=None if isinstance(schema, Mapping) else schema,
        )

        def register(function: F) -> F:
            shape = inspect_handler(function, context_type=Context, batch_context_type=BatchContext)
            around = tuple(inspect_provider(one, "middleware") for one in middleware)
            own = name or shape.name
            registered = Consumer(own, function, shape, names, options, sensitive, around, filter, decoding, pattern)
            self._add(replace(registered, inbox=inbox))
            return function

        return register

    def _add(self, consumer: Consumer) -> None:
        if consumer.name in self.consumers:
            raise ConfigError(f"{self._title()} has two consumers named {consumer.name!r}; give one of them name=….")
        self.consumers[consumer.name] = consumer
        for take in self._takers:
            take(consumer)

    def _title(self) -> str:
        return "The router"

    def hand_over(self, take: Callable[[Consumer], None]) -> None:
        """Call it with each consumer, with those that are registered later, too. For `app.include`."""
        for consumer in self.consumers.values():
            take(consumer)
        self._takers.append(take)


def _pattern(given: Sequence[object]) -> Pattern | None:
    """The only one. Raises ConfigError."""
    found = [one for one in given if isinstance(one, Pattern)]
    if len(found) > 1:
        raise ConfigError('@app.consumer takes one Pattern; join several with |: Pattern(r"(a|b)\\..*").')
    if found and any(isinstance(one, Mapping) for one in given):
        raise ConfigError(
            "@app.consumer takes a Pattern or a dict with the type of each topic, not both; types=… chooses the type by"
            " a header."
        )
    return found[0] if found else None


def _topics(given: Sequence[object]) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """The names, and the type of each where they have one. Raises ConfigError."""
    models = given[0] if len(given) == 1 and isinstance(given[0], Mapping) else {}
    names = tuple(topic for topic in models or given if isinstance(topic, str))
    if compiled := [one for one in given if isinstance(one, re.Pattern)]:
        raise ConfigError(
            f"For all topics whose names match a regular expression, write"
            f' @app.consumer(Pattern(r"{compiled[0].pattern}")), with the Pattern of keepfast.'
        )
    if len(names) < len(models or given):
        raise ConfigError(
            "@app.consumer takes the names of topics, one by one, in brackets of its own:"
            ' @app.consumer("orders.payment.v1"), or @app.consumer("a", "b"); or one dict with the type of each:'
            ' @app.consumer({"a": A, "b": B}).'
        )
    for topic in names:
        if _REGEX.search(topic):
            raise ConfigError(
                f"{topic!r} is no name of a topic. For all topics whose names match a regular expression, write"
                f' @app.consumer(Pattern(r"{topic}")).'
            )
    return names, models
