"""Messages of Protobuf: generated classes and their text, and what the schemas of the registry alone say of a value:
which message it is, and a class for it.
"""

from __future__ import annotations

import importlib
from base64 import standard_b64decode
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from keepfast.kafka.registry import Registered, Registry  # loads the client

_INDENT: Final = "  "


def is_message(kind: Any) -> bool:
    """Whether it is a class that was generated for a message of Protobuf."""
    return isinstance(kind, type) and hasattr(kind, "DESCRIPTOR") and hasattr(kind, "ParseFromString")


def proto_text(kind: Any) -> str:
    """The file that a generated class is from, as text: messages, enums and imports, without options and comments."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto()
    kind.DESCRIPTOR.file.CopyToProto(file)
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    lines += [f"package {file.package};"] if file.package else []
    lines += [f'import "{name}";' for name in file.dependency]
    for enum in file.enum_type:
        lines += _enum(enum, "")
    for message in file.message_type:
        lines += _message(message, "", proto2=file.syntax != "proto3")
    return "\n".join(lines) + "\n"


def _enum(enum: Any, indent: str) -> list[str]:
    values = [f"{indent}{_INDENT}{one.name} = {one.number};" for one in enum.value]
    return [f"{indent}enum {enum.name} {{", *values, f"{indent}}}"]


def _message(message: Any, indent: str, *, proto2: bool) -> list[str]:
    inner = indent + _INDENT
    maps = {f".{one.name}": one for one in message.nested_type if one.options.map_entry}
    lines = [f"{indent}message {message.name} {{"]
    for enum in message.enum_type:
        lines += _enum(enum, inner)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            lines += _message(nested, inner, proto2=proto2)
    open_choice: int | None = None
    for field in message.field:
        choice = field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None
        if choice != open_choice and open_choice is not None:
            lines.append(f"{inner}}}")
        if choice != open_choice and choice is not None:
            lines.append(f"{inner}oneof {message.oneof_decl[choice].name} {{")
        open_choice = choice
        deeper = _INDENT if choice is not None else ""
        label = "" if choice is not None else _label(field, proto2=proto2)
        lines.append(f"{inner}{deeper}{_typed(field, label, maps)} {field.name} = {field.number};")
    closing = [f"{inner}}}"] if open_choice is not None else []
    return [*lines, *closing, f"{indent}}}"]


def _typed(field: Any, label: str, maps: dict[str, Any]) -> str:
    entry = next((one for name, one in maps.items() if field.type_name.endswith(name)), None)
    if entry is None:
        return f"{label}{_type(field)}"
    return f"map<{', '.join(_type(one) for one in entry.field)}>"


def _type(field: Any) -> str:
    return str(field.type_name or field.Type.Name(field.type).removeprefix("TYPE_").lower())


def _label(field: Any, *, proto2: bool) -> str:
    name = field.Label.Name(field.label).removeprefix("LABEL_").lower()
    return f"{name} " if proto2 or name == "repeated" or field.proto3_optional else ""


# -- by the registry


def name_at(text: str, indexes: tuple[int, ...]) -> str:
    """The full name of that message of a schema, which is in the form of deserializers. Raises IndexError."""
    file = _file(text)
    messages, names = file.message_type, [file.package] if file.package else []
    for index in indexes:
        if index < 0:
            raise IndexError(index)
        message = messages[index]
        messages = message.nested_type
        names.append(message.name)
    return ".".join(names)


def class_at(registry: Registry, found: Registered, indexes: tuple[int, ...]) -> type[Any]:
    """A class for that message. Blocks: what the schema refers to is asked for. Raises RegistryError."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    _add(pool, registry, "value.proto", found, set())
    made: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name_at(found.text, indexes)))
    return made


def _add(pool: Any, registry: Registry, name: str, found: Registered, added: set[str]) -> None:
    """A file after those that it imports: references of the schema, else files that come with Protobuf."""
    file = _file(found.text)
    references = {one: (subject, version) for one, subject, version in found.references}
    for imported in file.dependency:
        if imported in references and imported not in added:
            _add(pool, registry, imported, registry.version(*references[imported], form="serialized"), added)
        elif imported not in added:
            _add_known(pool, imported, added)
    file.name = name
    added.add(name)
    pool.Add(file)


def _add_known(pool: Any, name: str, added: set[str]) -> None:
    """Of the files whose generated modules are installed: those of Protobuf itself, and of Google's common types.
    Raises KeyError.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool

    with suppress(ImportError):
        importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    for imported in file.dependency:
        if imported not in added:
            _add_known(pool, imported, added)
    added.add(name)
    pool.Add(file)


def _file(text: str) -> Any:
    from google.protobuf import descriptor_pb2

    return descriptor_pb2.FileDescriptorProto.FromString(standard_b64decode(text))
