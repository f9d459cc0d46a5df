"""The field names that an annotation declares, and the types inside it that cannot be decoded."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints, is_typeddict

import msgspec
import msgspec.inspect


def is_pydantic_model(annotation: Any) -> bool:
    """Whether it is a pydantic model or dataclass. Never imports pydantic."""
    return isinstance(annotation, type) and hasattr(annotation, "__pydantic_validator__") and "pydantic" in sys.modules


def holds_pydantic(annotation: Any) -> bool:
    """Whether it contains a pydantic model, so that pydantic must decode all of it."""
    return "pydantic" in sys.modules and any(is_pydantic_model(part) for part in _parts(annotation))


def msgspec_types(annotation: Any) -> tuple[frozenset[str], tuple[type, ...]]:
    """The declared field names, and the types that msgspec would pass through without decoding.

    Raises what msgspec raises for an annotation that it does not support (TypeError, NameError, …).
    """
    names: set[str] = set()
    foreign: list[type] = []
    for node in _nodes(msgspec.inspect.type_info(annotation)):
        match node:
            case msgspec.inspect.Field():
                names.add(node.encode_name)
            case msgspec.inspect.StructType() if node.tag_field is not None:
                names.add(node.tag_field)
            case msgspec.inspect.CustomType() if node.cls is not object:
                foreign.append(node.cls)
    return frozenset(names), tuple(foreign)


def _nodes(root: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type | msgspec.inspect.Field]:
    seen: set[int] = set()
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(getattr(node, name) for name in node.__struct_fields__)


def pydantic_names(annotation: Any) -> frozenset[str]:
    """Every field name and alias of the models, dataclasses and typed dicts in the annotation."""
    names: set[str] = set()
    for part in _parts(annotation):
        for name, field in _pydantic_fields(part).items():
            names.add(name)
            names.update(_aliases(getattr(field, "alias", None)))
            names.update(_aliases(getattr(field, "validation_alias", None)))
        names.update(_hints(part))
    return frozenset(names)


def _aliases(alias: Any) -> Iterator[str]:
    if isinstance(alias, str):
        yield alias
    for step in getattr(alias, "path", ()):
        yield from _aliases(step)
    for choice in getattr(alias, "choices", ()):
        yield from _aliases(choice)


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation and every type in it, each once; types that cannot be resolved are skipped."""
    seen: set[int] = set()
    stack = [annotation]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        stack.extend(get_args(part))
        stack.extend(field.annotation for field in _pydantic_fields(part).values() if hasattr(field, "annotation"))
        stack.extend(_hints(part).values())


def _pydantic_fields(part: Any) -> dict[str, Any]:
    if not is_pydantic_model(part):
        return {}
    fields = getattr(part, "__pydantic_fields__", None) or getattr(part, "model_fields", None)
    return fields if isinstance(fields, dict) else {}


def _hints(part: Any) -> dict[str, Any]:
    if not isinstance(part, type) or not (dataclasses.is_dataclass(part) or is_typeddict(part)):
        return {}
    try:
        return get_type_hints(part, include_extras=True)
    except Exception:  # noqa: BLE001  an unresolvable annotation is reported by the library that has to decode it
        return {}
