"""The signature of a handler: its parameters, their order, and whether it is async."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from keepfast.core.errors import ConfigError

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class HandlerShape:
    """How to call a handler. `annotation` is resolved; it is `inspect.Parameter.empty` if there is none."""

    name: str
    """The handler's own name, for group names, logs and letters."""
    is_async: bool
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

    @property
    def where(self) -> str:
        """The handler and its parameter, for messages."""
        return f"handler {self.name}(), parameter {self.value!r}"


def inspect_handler(
    handler: Any,
    *,
    context_type: type | None = None,
    batch_context_type: type | None = None,
    namespace: Mapping[str, Any] | None = None,
) -> HandlerShape:
    """Read a function, bound method, `functools.partial` or callable object.

    It takes exactly one value and at most one parameter annotated with `context_type` (with `batch_context_type`, if
    the value is a list), in any order; further parameters must be keyword-only and have defaults. `namespace` helps
    to resolve string annotations that name something local. Raises ConfigError.
    """
    name = handler_name(handler)
    code = _code_of(handler, name)
    parameters = _parameters(handler, code, name, namespace or {})
    kinds = [kind for kind in (context_type, batch_context_type) if kind is not None]
    contexts = [p for p in parameters if any(_bare(p.annotation) is kind for kind in kinds)]
    values = [p for p in parameters if p not in contexts]
    if len(contexts) > 1:
        raise ConfigError(f"handler {name}() takes the context twice ({_list(contexts)}); keep one of them")
    if len(values) != 1:
        raise ConfigError(_not_one_value(name, values))
    value, context = values[0], contexts[0] if contexts else None
    batch = _bare(value.annotation) is list or get_origin(_bare(value.annotation)) is list
    wanted = batch_context_type if batch else context_type
    if context is not None and wanted is not None and _bare(context.annotation) is not wanted:
        raise ConfigError(
            f"handler {name}() takes {'a batch' if batch else 'one record'}; annotate {context.name} with"
            f" {wanted.__name__}"
        )
    return HandlerShape(
        name=name,
        is_async=inspect.iscoroutinefunction(code),
        value=value.name,
        annotation=value.annotation,
        context=context.name if context else None,
        batch=batch,
        context_first=parameters[0] is context,
        by_name=frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY),
    )


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
    if not (inspect.isroutine(target) or inspect.iscoroutinefunction(target)):
        target = type(target).__call__
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError(
            f"handler {name}() contains `yield`, so calling it runs nothing; remove `yield`, and return when done"
        )
    return target


def _parameters(handler: Any, code: Any, name: str, namespace: Mapping[str, Any]) -> list[inspect.Parameter]:
    """The parameters that a call must fill, with resolved annotations."""
    try:
        found = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"handler {name}() has no readable signature ({error}); wrap it in a function") from error
    if any(p.kind in _VARIADIC for p in found):
        raise ConfigError(f"handler {name}() takes *args or **kwargs; declare one annotated parameter for the value")
    wanted = [p for p in found if not (p.kind is p.KEYWORD_ONLY and p.default is not p.empty)]
    unresolved = {p.name: p.annotation for p in wanted if isinstance(p.annotation, str)}
    if not unresolved:
        return wanted
    function = inspect.unwrap(code)
    function = getattr(function, "__func__", function)
    # Only these are resolved: the return annotation may exist for type checkers only.
    stub = types.SimpleNamespace(__annotations__=unresolved)
    local = {**_closure(function), **namespace}
    try:
        hints = get_type_hints(stub, getattr(function, "__globals__", {}), local, include_extras=True)
    except Exception as error:
        raise ConfigError(
            f"handler {name}(): the annotations of {', '.join(unresolved)} cannot be resolved ({error}); "
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


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _not_one_value(name: str, values: list[inspect.Parameter]) -> str:
    if not values:
        return f"handler {name}() takes no value; declare one annotated parameter, such as `value: bytes`"
    if values[0].name == "self" and len(values) == 2:
        return f"handler {name}() is an unbound method; pass a bound one, as in `Handlers().{name}`"
    return (
        f"handler {name}() takes {len(values)} values ({_list(values)}), but a record has one; "
        "annotate the context parameter with Context, and make the others keyword-only with defaults"
    )


def _list(parameters: list[inspect.Parameter]) -> str:
    return ", ".join(p.name for p in parameters)
