"""Handlers of every make: what they take, whether they are async, and how they are called."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytest

from keepfast.core.errors import ConfigError
from keepfast.decode import HandlerShape, inspect_handler, positional
from keepfast.decode.signature import Parameter, Provide

if TYPE_CHECKING:
    from decimal import Decimal


class Context:
    """Stands for the engine's."""


def shape_of(handler: Any) -> HandlerShape:
    return inspect_handler(handler, context_type=Context)


def call(handler: Any, value: object, context: object) -> Any:
    """As the engine calls it."""
    shape = shape_of(handler)
    ready = positional(handler, shape)
    result = ready(value) if shape.context is None else ready(value, context)
    return asyncio.run(result) if shape.is_async else result


def plain(value: bytes) -> tuple[object, ...]:
    return (value,)


def with_context(value: bytes, ctx: Context) -> tuple[object, ...]:
    return (value, ctx)


def context_first(ctx: Context, value: bytes) -> tuple[object, ...]:
    return (value, ctx)


def context_first_by_position_only(ctx: Context, value: bytes, /) -> tuple[object, ...]:
    return (value, ctx)


def context_by_name(value: bytes, /, *, ctx: Context) -> tuple[object, ...]:
    return (value, ctx)


def value_by_name(ctx: Context, /, *, value: bytes) -> tuple[object, ...]:
    return (value, ctx)


def both_by_name(*, ctx: Context, value: bytes) -> tuple[object, ...]:
    return (value, ctx)


def only_value_by_name(*, value: bytes) -> tuple[object, ...]:
    return (value,)


def with_options(value: bytes, ctx: Context, *, tries: int = 3, **_: Any) -> tuple[object, ...]:
    return (value, ctx)


def with_tuning(value: bytes, ctx: Context, *, tries: int = 3) -> tuple[object, ...]:
    return (value, ctx)


def with_database(value: bytes, database: str, ctx: Context) -> tuple[object, ...]:
    assert database == "db"
    return (value, ctx)


def database_first(database: str, value: bytes) -> tuple[object, ...]:
    assert database == "db"
    return (value,)


def annotated_context(value: bytes, ctx: Annotated[Context, "a remark"]) -> tuple[object, ...]:
    return (value, ctx)


def with_default(value: bytes = b"") -> tuple[object, ...]:
    return (value,)


async def coroutine(value: bytes, ctx: Context) -> tuple[object, ...]:
    return (value, ctx)


async def coroutine_context_first(ctx: Context, value: bytes) -> tuple[object, ...]:
    return (value, ctx)


class Handlers:
    def method(self, value: bytes, ctx: Context) -> tuple[object, ...]:
        return (value, ctx)

    async def coroutine_method(self, value: bytes) -> tuple[object, ...]:
        return (value,)

    @classmethod
    def of_class(cls, value: bytes) -> tuple[object, ...]:
        return (value,)

    @staticmethod
    def static(value: bytes) -> tuple[object, ...]:
        return (value,)


class CallableHandler:
    def __call__(self, value: bytes, ctx: Context) -> tuple[object, ...]:
        return (value, ctx)


class AsyncCallableHandler:
    async def __call__(self, value: bytes, ctx: Context) -> tuple[object, ...]:
        return (value, ctx)


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


HANDLERS: list[tuple[Any, bool, bool]] = [
    # (handler, is async, takes the context)
    (plain, False, False),
    (with_context, False, True),
    (context_first, False, True),
    (context_first_by_position_only, False, True),
    (context_by_name, False, True),
    (value_by_name, False, True),
    (both_by_name, False, True),
    (only_value_by_name, False, False),
    (with_tuning, False, True),
    (annotated_context, False, True),
    (with_default, False, False),
    (functools.partial(with_database, database="db"), False, True),
    (functools.partial(database_first, "db"), False, False),
    (functools.partial(functools.partial(coroutine)), True, True),
    (coroutine, True, True),
    (coroutine_context_first, True, True),
    (Handlers().method, False, True),
    (Handlers().coroutine_method, True, False),
    (functools.partial(Handlers().coroutine_method), True, False),
    (Handlers.of_class, False, False),
    (Handlers.static, False, False),
    (CallableHandler(), False, True),
    (AsyncCallableHandler(), True, True),
    (functools.partial(AsyncCallableHandler()), True, True),
    (traced(with_context), False, True),
    (lambda value: (value,), False, False),
]


@pytest.mark.parametrize(("handler", "is_async", "takes_context"), HANDLERS, ids=range(len(HANDLERS)))
def test_a_handler_is_read_and_gets_what_it_asked_for(handler: Any, is_async: bool, takes_context: bool) -> None:
    shape = shape_of(handler)
    assert shape.is_async is is_async
    assert shape.value == "value"
    assert (shape.context is not None) is takes_context
    assert shape.annotation in (bytes, inspect.Parameter.empty)
    assert not shape.batch
    context = Context()
    assert call(handler, b"v", context) == ((b"v", context) if takes_context else (b"v",))


@pytest.mark.parametrize("handler", [plain, with_context, coroutine, Handlers.static], ids=lambda h: h.__name__)
def test_a_handler_in_the_usual_order_is_called_without_anything_between(handler: Any) -> None:
    assert positional(handler, shape_of(handler)) is handler


def test_what_is_neither_value_nor_context_is_left_to_be_filled() -> None:
    def handle(
        n: Annotated[int, Provide(one)], ctx: Context, value: bytes, more: str = "", *, last: Any, tuning: int = 3
    ) -> None: ...

    shape = inspect_handler(handle, context_type=Context, namespace={"Context": Context})
    assert (shape.value, shape.context) == ("value", "ctx")
    assert shape.others == (Parameter("n", int, one), Parameter("more", str), Parameter("last", Any, by_name=True))


def test_a_list_is_a_batch() -> None:
    def many(values: list[bytes]) -> None: ...
    def remarked(values: Annotated[list[bytes], "a remark"]) -> None: ...
    def bare(values: list) -> None: ...  # type: ignore[type-arg]

    assert shape_of(many).batch
    assert shape_of(many).annotation == list[bytes]
    assert shape_of(remarked).batch
    assert shape_of(bare).batch


def test_a_handler_without_annotation_says_so_in_its_shape() -> None:
    shape = shape_of(lambda value: None)
    assert shape.annotation is inspect.Parameter.empty
    assert shape.where == "handler <lambda>(), parameter 'value'"


def test_a_return_annotation_for_type_checkers_alone_does_not_matter() -> None:
    def handler(value: bytes) -> Decimal | None: ...

    assert shape_of(handler).annotation is bytes


def test_a_local_class_is_found_in_the_namespace_given() -> None:
    class Local: ...

    def handler(value: Local) -> None: ...

    assert inspect_handler(handler, namespace=locals()).annotation is Local


def test_a_local_class_that_the_body_uses_is_found_by_itself() -> None:
    class Local: ...

    def handler(value: Local) -> bool:
        return isinstance(value, Local)

    assert shape_of(handler).annotation is Local


def nothing() -> None: ...
def only_context(ctx: Context) -> None: ...
def one() -> None: ...
def two_contexts(a: bytes, b: Context, c: Context) -> None: ...
def variadic(*args: bytes) -> None: ...
def generator(value: bytes) -> Iterator[bytes]:
    yield value


async def async_generator(value: bytes) -> AsyncIterator[bytes]:
    yield value


def unresolvable(value: Decimal) -> None: ...


class GeneratorHandler:
    def __call__(self, value: bytes) -> Iterator[bytes]:
        yield value


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (nothing, "takes no value"),
        (only_context, "takes no value"),
        (two_contexts, "the context twice (b, c)"),
        (variadic, "*args"),
        (with_options, "**kwargs"),
        (print, "*args"),
        (generator, "yield"),
        (async_generator, "yield"),
        (functools.partial(generator), "yield"),
        (GeneratorHandler(), "yield"),
        (Handlers.method, "is an unbound method"),
        (CallableHandler, "is a class"),
        (5, "not callable"),
        (None, "not callable"),
        (unresolvable, "TYPE_CHECKING"),
        (functools.partial(cast("Any", plain), b"1", b"2"), "no readable signature"),
    ],
    ids=lambda given: given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__),
)
def test_a_handler_that_cannot_be_called_with_one_value_is_refused(handler: Any, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        shape_of(handler)
    assert says in str(refused.value)
