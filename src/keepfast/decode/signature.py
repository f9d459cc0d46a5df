"""The signatures of handlers, providers and middleware: what they take, and whether they are async or generators."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from keepfast.core.errors import ConfigError, Halt

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_any_async: Any = aiter
_CONTEXT_MANAGERS = (contextlib.contextmanager(iter).__code__, contextlib.asynccontextmanager(_any_async).__code__)
"""What `@contextmanager` and `@asynccontextmanager` put in place of a generator function."""


@dataclass(frozen=True, slots=True)
class Provide:
    """Says in the annotation of a parameter which function makes its argument: `Annotated[Session, Provide(session)]`.

    The function is called once for each call of a handler, after decoding, and may take what a handler may take except
    for the value: the context, resources, and values of other providers. It may be async if the handler is. One that
    yields, once, continues after the handler: with what the handler raised, raised at its `yield`. The record is
    finished after that.
    """

    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that a call must fill. `annotation` is resolved and without `Annotated`; `inspect.Parameter.empty`
    if there is none.
    """

    name: str
    annotation: Any
    provider: Callable[..., Any] | None = None
    by_name: bool = False
    """It is keyword-only."""


@dataclass(frozen=True, slots=True)
class HandlerShape:
    """How to call a handler. `annotation` is resolved; it is `inspect.Parameter.empty` if there is none."""

    name: str
    """The handler's own name, for group names, logs and letters."""
    is_async: bool
    """It is a coroutine function, or a decorator's function around one."""
    value: str
    """The name of the parameter that takes the decoded value."""
    annotation: Any
    context: str | None
    """The name of the parameter that takes the context, or None."""
    batch: bool
    """It takes `list[…]`: several records in one call."""
    context_first: bool = False
    """The context precedes the value."""
    by_name: frozenset[str] = frozenset()
    """The keyword-only ones of the two."""
    parameters: tuple[Parameter, ...] = ()
    """All, in their order."""

    @property
    def others(self) -> tuple[Parameter, ...]:
        """Those that take neither the value nor the context."""
        return tuple(one for one in self.parameters if one.name not in (self.value, self.context))

    @property
    def where(self) -> str:
        """The handler and its parameter, for messages."""
        return f"handler {self.name}(), parameter {self.value!r}"


@dataclass(frozen=True, slots=True)
class ProviderShape:
    """How to call a provider or a middleware. A generator yields once; what it yields is what it provides."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    is_async: bool
    is_generator: bool


def inspect_handler(
    handler: Any,
    *,
    context_type: type | None = None,
    batch_context_type: type | None = None,
    namespace: Mapping[str, Any] | None = None,
) -> HandlerShape:
    """Read a function, bound method, `functools.partial` or callable object.

    The value is the first parameter that is neither a context (annotated with `context_type`, or with
    `batch_context_type` if the value is a list) nor has a provider; whether the others can be filled is not known yet.
    Keyword-only parameters with defaults are left alone. `namespace` helps to resolve string annotations that name
    something local. Raises ConfigError.
    """
    name = handler_name(handler)
    code = _code_of(handler, name)
    found = _parameters(handler, code, f"handler {name}()", namespace or {})
    parameters = tuple(map(_parameter, found))
    kinds = [kind for kind in (context_type, batch_context_type) if kind is not None]
    contexts = [p for p in parameters if any(p.annotation is kind for kind in kinds)]
    values = [p for p in parameters if p not in contexts and p.provider is None]
    if len(contexts) > 1:
        raise ConfigError(f"handler {name}() takes the context twice ({_list(contexts)}); keep one of them")
    if not values:
        raise ConfigError(f"handler {name}() takes no value; declare one annotated parameter, such as `value: bytes`")
    if values[0].name == "self" and len(values) > 1:
        raise ConfigError(f"handler {name}() is an unbound method; pass a bound one, as in `Handlers().{name}`")
    value, context = values[0], contexts[0] if contexts else None
    batch = value.annotation is list or get_origin(value.annotation) is list
    wanted = batch_context_type if batch else context_type
    if context is not None and wanted is not None and context.annotation is not wanted:
        raise ConfigError(
            f"handler {name}() takes {'a batch' if batch else 'one record'}; annotate {context.name} with"
            f" {wanted.__name__}"
        )
    return HandlerShape(
        name=name,
        is_async=any(map(inspect.iscoroutinefunction, (code, inspect.unwrap(code)))),
        value=value.name,
        annotation=next(p.annotation for p in found if p.name == value.name),
        context=context.name if context else None,
        batch=batch,
        context_first=parameters[0] is context,
        by_name=frozenset(p.name for p in parameters if p.by_name),
        parameters=parameters,
    )


def inspect_provider(function: Any, what: Literal["provider", "middleware"]) -> ProviderShape:
    """Read a function, bound method, `functools.partial`, callable object or, as a provider, a class; a generator
    function may be decorated with `@contextmanager`. Raises ConfigError.
    """
    name = handler_name(function)
    where = f"{what} {name}()"
    if not callable(function):
        raise ConfigError(f"{what} {name} is not callable; pass a function")
    if getattr(function, "__code__", None) in _CONTEXT_MANAGERS:
        function = inspect.unwrap(function, stop=lambda one: getattr(one, "__code__", None) not in _CONTEXT_MANAGERS)
    code = _body_of(function)
    body = inspect.unwrap(code)  # calling a decorated generator function gives its generator
    shape = ProviderShape(
        name=name,
        function=function,
        parameters=tuple(map(_parameter, _parameters(function, code, where, {}))),
        is_async=inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(body),
        is_generator=inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body),
    )
    if what == "middleware" and not shape.is_generator:
        raise ConfigError(f"{where} has no `yield`; write it as a generator that yields once, where the handler runs")
    return shape


def positional(handler: Callable[..., Any], shape: HandlerShape) -> Callable[..., Any]:
    """The handler as a function of (value) or (value, context): if possible itself, at no cost per record."""
    value, context = shape.value, shape.context
    if context is None:
        return (lambda decoded: handler(**{value: decoded})) if shape.by_name else handler
    match (value in shape.by_name, context in shape.by_name):
        case (False, False):
            return (lambda decoded, ctx: handler(ctx, decoded)) if shape.context_first else handler
        case (False, True):
            return lambda decoded, ctx: handler(decoded, **{context: ctx})
        case (True, False):
            return lambda decoded, ctx: handler(ctx, **{value: decoded})
        case _:
            return lambda decoded, ctx: handler(**{value: decoded, context: ctx})


def awaiting(handler: Callable[..., Any], shape: HandlerShape) -> Callable[..., Any]:
    """The handler itself, or a coroutine function that awaits what a decorator's plain function around one returns.

    That function runs on the event loop. If it runs a loop of its own, which is possible on a thread only, the call
    raises Halt.
    """
    if not shape.is_async or inspect.iscoroutinefunction(_body_of(handler)):
        return handler

    async def call_wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            result = handler(*args, **kwargs)
        except RuntimeError as error:
            if "event loop" not in str(error):
                raise
            raise Halt(
                f"the decorator of {shape.name}() runs an event loop of its own around an async def, and async handlers"
                " run on one already; remove the decorator, or its functools.wraps to run the handler on a thread"
            ) from error
        return await result if inspect.isawaitable(result) else result

    return call_wrapper


def is_plain(function: object) -> bool:
    """Whether it can be called, and its result is what it returns: a coroutine function returns a coroutine."""
    return callable(function) and not inspect.iscoroutinefunction(_body_of(function))


def handler_name(handler: Any) -> str:
    """The function's name, or the class name of a callable object."""
    target = _unwrap_partial(handler)
    name = getattr(target, "__name__", None) or type(target).__name__
    return str(name)


def _unwrap_partial(handler: Any) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def _code_of(handler: Any, name: str) -> Any:
    """The function whose body runs: inside partials, or `__call__` of a callable object."""
    target = _unwrap_partial(handler)
    if isinstance(target, type):
        raise ConfigError(f"handler {name} is a class; pass a function, or an instance whose class defines __call__")
    if not callable(target):
        raise ConfigError(f"handler {name} is not callable; pass a function")
    target = _body_of(target)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError(
            f"handler {name}() contains `yield`, so calling it runs nothing; remove `yield`, and return when done"
        )
    return target


def _body_of(target: Any) -> Any:
    """The function that runs: of a partial, a class, or a callable object."""
    target = _unwrap_partial(target)
    if isinstance(target, type):
        return target.__init__  # type: ignore[misc] # whichever it has
    return target if inspect.isroutine(target) or inspect.iscoroutinefunction(target) else type(target).__call__


def _parameter(found: inspect.Parameter) -> Parameter:
    bare, *notes = get_args(found.annotation) if get_origin(found.annotation) is Annotated else [found.annotation]
    providers = [note.function for note in notes if isinstance(note, Provide)]
    return Parameter(found.name, bare, providers[-1] if providers else None, found.kind is found.KEYWORD_ONLY)


def _parameters(function: Any, code: Any, where: str, namespace: Mapping[str, Any]) -> list[inspect.Parameter]:
    """The parameters that a call must fill, with resolved annotations."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"{where} has no readable signature ({error}); wrap it in a function") from error
    if any(p.kind in _VARIADIC for p in found):
        raise ConfigError(
            f"{where} takes *args or **kwargs; declare its parameters one by one, with annotations. If it is the"
            " function inside a decorator, put @functools.wraps(…) above it"
        )
    wanted = [p for p in found if not (p.kind is p.KEYWORD_ONLY and p.default is not p.empty)]
    unresolved = {p.name: p.annotation for p in wanted if isinstance(p.annotation, str)}
    if not unresolved:
        return wanted
    body = inspect.unwrap(code)
    body = getattr(body, "__func__", body)
    # Only these are resolved: the return annotation may exist for type checkers only.
    stub = types.SimpleNamespace(__annotations__=unresolved)
    local = {**_closure(body), **namespace}
    try:
        hints = get_type_hints(stub, getattr(body, "__globals__", {}), local, include_extras=True)
    except Exception as error:
        raise ConfigError(
            f"{where}: the annotations of {', '.join(unresolved)} cannot be resolved ({error}); "
            "import their names at run time, not only under TYPE_CHECKING"
        ) from error
    return [p.replace(annotation=hints.get(p.name, p.annotation)) for p in wanted]


def _closure(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _list(parameters: list[Parameter]) -> str:
    return ", ".join(p.name for p in parameters)
