"""What users import: signatures, fields and docstrings of the public names."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import os
import re
import textwrap
import typing
from collections.abc import Iterator
from types import FunctionType, ModuleType, UnionType
from typing import Any
from unittest.mock import patch

from keepfast.app.options import ConsumerOptions
from keepfast.core.events import EVENT_TYPES, Event
from keepfast.settings import catalogue
from tools.reference.markdown import MADE, code, docstring, escaped, fence, table

INTRODUCTION = """# API

What you may import. Everything else is internal and may change with any version.
"""

MODULES = ("keepfast", "keepfast.testing", "keepfast.testing.harness", "keepfast.runner")
_FIRST = ("App", "Context", "BatchContext")
_GIVEN = frozenset({"BatchContext", "Context", "Harness"})
"""Handed to users, never made by them: how they are made is ours to change."""
_INTERNAL = frozenset({"sends"})
_WIDE = 100


def page() -> str:
    parts = [MADE + INTRODUCTION]
    documented: set[object] = set()
    for name in MODULES:
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{docstring(module) if module.__doc__ and name != 'keepfast' else ''}\n")
        for public, thing in names_of(module):
            if id(thing) in documented:
                parts.append(f"### {public} {{ #{anchor(name, public)} }}\n\nThe same as `keepfast.{public}`.\n")
                continue
            documented.add(id(thing))
            parts.append(_entry(name, public, thing))
            if public == "App":
                parts.append(consumer_options())
    return "\n".join(parts)


def names_of(module: ModuleType) -> list[tuple[str, object]]:
    found = {name: getattr(module, name) for name in module.__all__}
    return sorted(found.items(), key=lambda pair: (*_rank(*pair), pair[0]))


def _rank(name: str, thing: object) -> tuple[bool, int, bool]:
    """Events at the end, their base classes first."""
    if isinstance(thing, type) and issubclass(thing, Event):
        return True, 0, thing in EVENT_TYPES
    return False, _FIRST.index(name) if name in _FIRST else len(_FIRST), False


def anchor(module: str, name: str) -> str:
    return f"{module}.{name}".replace(".", "-").lower()


def _entry(module: str, name: str, thing: object) -> str:
    lines = [f"### {name} {{ #{anchor(module, name)} }}\n"]
    if callable(thing) and name not in _GIVEN:
        lines.append(fence(f"{name}{_signature(thing, wrapped=True)}", "python"))
    if not (dataclasses.is_dataclass(thing) and (inspect.getdoc(thing) or "").startswith(f"{name}(")):
        lines.append(docstring(thing) + "\n")
    if isinstance(thing, type):
        lines += [_member(member, found) for member, found in members(thing)]
    return "\n".join(lines)


def _member(name: str, found: object) -> str:
    if isinstance(found, property):
        kind = _plain(inspect.signature(found.fget).return_annotation) if found.fget else ""
        return f"**`{name}`** *{escaped(kind)}*\n: {_one_paragraph(found) or 'Of the record.'}\n"
    return f"**`{name}{_signature(found)}`**\n: {_one_paragraph(found)}\n"


def _one_paragraph(thing: object) -> str:
    return textwrap.indent(docstring(thing), "    ").lstrip()


def members(cls: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties, of its bases of ours too. What has no docstring is for our own use, or plain."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("keepfast"):
            continue
        for name, found in vars(base).items():
            plain = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            if name.startswith("_") or name in seen | _INTERNAL or not isinstance(plain, property | FunctionType):
                continue
            seen.add(name)
            if inspect.getdoc(plain) or cls.__name__ in _GIVEN:
                yield name, plain


def _signature(thing: Any, *, wrapped: bool = False) -> str:
    """As it would be written, with the defaults that hold."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    words = list(_parameters(thing, signature))
    returns = "" if isinstance(thing, type) else f" -> {_plain(signature.return_annotation)}"
    line = f"({', '.join(words)}){returns}"
    if not wrapped or len(line) <= _WIDE:
        return line
    return "(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"


def _parameters(thing: Any, signature: inspect.Signature) -> Iterator[str]:
    made = _made(thing)
    star = False
    for name, parameter in signature.parameters.items():
        if name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        word = str(parameter.replace(default=parameter.empty, annotation=parameter.empty))
        if parameter.annotation is not parameter.empty:
            word += f": {_plain(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            default = getattr(made, name, parameter.default)
            word += " = …" if isinstance(default, FunctionType) else f" = {default!r}"
        yield word


def _made(thing: Any) -> object:
    """One of these with all its defaults, which may have been worked out."""
    try:
        with patch.dict(os.environ, clear=True):  # some defaults come from there
            return thing() if dataclasses.is_dataclass(thing) and isinstance(thing, type) else None
    except TypeError:  # something must be given
        return None


def _plain(annotation: object) -> str:
    """A type as it is written in code, without the modules of its names."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = first_of_annotated(text)  # what else is declared is in the settings' reference
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text.strip("'"))


def first_of_annotated(text: str) -> str:
    """The type in the text of an annotation, without what `Annotated` adds to it."""
    match ast.parse(text, mode="eval").body if text.startswith("Annotated[") else None:
        case ast.Subscript(slice=ast.Tuple(elts=[first, *_])):
            return ast.unparse(first).replace("'", '"')
        case _:
            return text


def consumer_options() -> str:
    """The options of `@app.consumer`: types from the code, meanings from the catalogue of settings."""
    hints = typing.get_type_hints(ConsumerOptions)
    rows = [(code(name), code(written(kind)), option_doc(name)) for name, kind in hints.items()]
    return "#### Options of `@app.consumer`\n\n" + table(("option", "takes", "what it is for"), rows)


def option_doc(name: str) -> str:
    setting = catalogue.CONSUMER.by_name.get(name)
    if setting is not None:
        return setting.doc
    section = catalogue.BY_NAME[name]
    return f"{section.doc} [All settings](settings.md#{name})"


def written(kind: Any) -> str:
    """A type as a person would write it, the words of a Literal one by one."""
    arguments = typing.get_args(kind)
    if kind is type(None):
        return "None"
    if typing.get_origin(kind) is typing.Literal:
        return " | ".join(f'"{word}"' for word in arguments)
    if isinstance(kind, UnionType) or typing.get_origin(kind) is typing.Union:
        return " | ".join(map(written, arguments))
    name = str(getattr(kind, "__name__", kind))
    return f"{name}[{', '.join(map(written, arguments))}]" if arguments else name
