"""Choose a decoder by annotation, once, so that decoding a record is one call.

    bytes          the value as it is
    str            UTF-8 text
    dict[str, …]   a JSON object
    int float bool a JSON number or literal
    dataclass, TypedDict, msgspec.Struct   JSON, checked by msgspec (no coercion)
    pydantic model or dataclass            JSON, checked by pydantic
    A | B          one of several Structs or pydantic models
    … | None       any of these, and None for a null value (a tombstone)

Only a null value is a tombstone; the JSON text `null` is a value that does not fit. Of duplicate JSON keys the last
wins (the first in old versions of pydantic).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, TypeAlias, Union, get_args, get_origin, is_typeddict

import msgspec

from keepfast.core.errors import ConfigError, DecodeError, Discard, Signal
from keepfast.decode.failures import UNKNOWN_TYPE, Names, describe, describe_custom, tombstone
from keepfast.decode.fields import holds_pydantic, is_pydantic_model, msgspec_types, pydantic_names
from keepfast.decode.signature import handler_name

Decoder: TypeAlias = Callable[[bytes | None], Any]
"""Thread-safe. Raises DecodeError for a value that does not match, Discard for an unwanted tombstone that is to be
dropped; a Signal raised by a user's validator and MemoryError propagate."""

Tombstones: TypeAlias = Literal["dead-letter", "discard"]

_ACCEPTED = (
    "bytes, str, dict[str, Any], int, float, bool, a dataclass, a TypedDict, a msgspec.Struct or a pydantic model, "
    "each also with `| None` to receive tombstones"
)
_SCALARS = (int, float, bool)
_UNIONS = (Union, types.UnionType)


def decoder_for(
    annotation: Any,
    *,
    tombstones: Tombstones = "dead-letter",
    discard_unknown: bool = False,
    where: str = "",
) -> Decoder:
    """The decoder for a resolved annotation (not a string; see `inspect_handler`).

    `discard_unknown`: a tag that no member of a tagged union has raises Discard. `where` names the parameter in errors.
    Raises ConfigError, with what is accepted, for any other annotation.
    """
    prefix = f"{where}: " if where else ""
    inner, optional = _split_none(annotation)
    null = on_null(annotation, tombstones)
    if inner is bytes:
        return _same if optional else _bytes_decoder(null)
    parse, names = _parser(inner, prefix)
    decode = _decoder(parse, null, type_name(inner), names)
    return _discarding_unknown(decode) if discard_unknown else decode


def custom_decoder(function: Callable[[bytes], Any], annotation: Any, *, tombstones: Tombstones) -> Decoder:
    """The user's function as a decoder. The annotation says whether it takes tombstones, and names what was wanted."""
    null, wanted, name = on_null(annotation, tombstones), type_name(_split_none(annotation)[0]), handler_name(function)

    def decode(value: bytes | None) -> Any:
        if value is None:
            return null()
        try:
            return function(value)
        except (Signal, DecodeError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  any error that the bytes cause becomes an outcome
            failure = describe_custom(error, value, decoder=name, wanted=wanted)
        raise failure

    return decode


def converter_for(annotation: Any, *, where: str = "") -> tuple[Callable[[Any], Any], Names]:
    """From plain data (dicts, lists, numbers, dates) to what the annotation says, and the field names that it declares.
    Raises ConfigError for an annotation that no data can become.
    """
    prefix = f"{where}: " if where else ""
    inner = _split_none(annotation)[0]
    if _bare(inner) in (Any, object, dict) or get_args(_bare(inner)) == (str, Any):
        return _same, frozenset
    _refuse_unusable(inner, prefix)
    if holds_pydantic(inner):
        validate = sys.modules["pydantic"].TypeAdapter(inner).validate_python
        return validate, _pydantic_parser(inner, prefix)[1]
    return functools.partial(msgspec.convert, type=inner), _msgspec_parser(inner, prefix)[1]


def on_null(annotation: Any, tombstones: Tombstones) -> Callable[[], Any]:
    """What to do with a null value: return what the handler gets for it, or raise."""
    if tombstones not in ("dead-letter", "discard"):
        raise ConfigError(f"tombstones must be 'dead-letter' or 'discard'; got {tombstones!r}")
    inner, optional = _split_none(annotation)
    return _accept_null if optional else _refuse_null(type_name(inner), tombstones)


def members_of(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, `NoneType` included; of anything else itself."""
    bare = _bare(annotation)
    return get_args(bare) if get_origin(bare) in _UNIONS else (bare,)


def element_of(annotation: Any, *, where: str = "") -> Any:
    """The type of one record of a batch: `X` of `list[X]`. Raises ConfigError for a bare `list`."""
    elements = get_args(_bare(annotation))
    if not elements:
        raise ConfigError(f"{where}: `list` has no element type; write `list[bytes]`, or one of: {_ACCEPTED}")
    return elements[0]


def takes_bytes(annotation: Any) -> bool:
    """Whether the handler gets the raw bytes, so that values that are not null need no decoder call."""
    return _split_none(annotation)[0] is bytes


def _same(value: Any) -> Any:
    return value


def _bytes_decoder(on_null: Callable[[], Any]) -> Decoder:
    def decode(value: bytes | None) -> bytes | None:
        return on_null() if value is None else value

    return decode


def _decoder(parse: Callable[[bytes], Any], on_null: Callable[[], Any], wanted: str, names: Names) -> Decoder:
    def decode(value: bytes | None) -> Any:
        if value is None:
            return on_null()
        try:
            return parse(value)
        except (Signal, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  any error that the bytes cause becomes an outcome
            failure = describe(error, value, wanted=wanted, names=names)
        # Raised outside the except block: the library's error quotes the payload and must not become the __context__.
        raise failure

    return decode


def _discarding_unknown(decode: Decoder) -> Decoder:
    def decode_known(value: bytes | None) -> Any:
        try:
            return decode(value)
        except DecodeError as error:
            if error.code != UNKNOWN_TYPE:
                raise
        raise Discard("its tag is that of none of the types")

    return decode_known


def _accept_null() -> None:
    return None


def _refuse_null(wanted: str, tombstones: Tombstones) -> Callable[[], None]:
    def refuse() -> None:
        raise tombstone(wanted)

    def discard() -> None:
        raise Discard("the value is null (a tombstone)")

    return refuse if tombstones == "dead-letter" else discard


def _parser(inner: Any, prefix: str) -> tuple[Callable[[bytes], Any], Names]:
    if inner is str:
        return bytes.decode, frozenset
    _refuse_unusable(inner, prefix)
    if holds_pydantic(inner):
        return _pydantic_parser(inner, prefix)
    return _msgspec_parser(inner, prefix)


def _refuse_unusable(inner: Any, prefix: str) -> None:
    if inner is inspect.Parameter.empty:
        raise ConfigError(f"{prefix}has no annotation; write `bytes` for the raw value, or one of: {_ACCEPTED}")
    if isinstance(inner, str):
        raise ConfigError(f"{prefix}the annotation {inner!r} was not resolved; make its name importable at run time")
    bare = _bare(inner)
    if (get_origin(bare) or bare) in (list, Sequence):
        raise ConfigError(
            f"{prefix}{type_name(inner)} is not a value; a batch handler is annotated with exactly list[…]"
        )
    members = members_of(inner)
    for member in members:
        if not _is_usable(_bare(member), alone=len(members) == 1):
            raise ConfigError(f"{prefix}cannot decode a record into {type_name(inner)}; accepted are: {_ACCEPTED}")


def _is_usable(member: Any, *, alone: bool) -> bool:
    origin = get_origin(member) or member
    if origin in (dict, Mapping, *_SCALARS):
        return alone  # in a union the result type would be ambiguous
    if not isinstance(origin, type) or origin is msgspec.Struct:
        return False
    if is_pydantic_model(origin):
        return origin is not sys.modules["pydantic"].BaseModel
    return dataclasses.is_dataclass(origin) or is_typeddict(origin) or issubclass(origin, msgspec.Struct)


def _msgspec_parser(inner: Any, prefix: str) -> tuple[Callable[[bytes], Any], Names]:
    try:
        names, foreign = msgspec_types(inner)
        parse: Callable[[bytes], Any] = msgspec.json.Decoder(inner).decode
    except Exception as error:
        raise ConfigError(f"{prefix}cannot decode JSON into {type_name(inner)}: {error}") from error
    if foreign:
        listed = ", ".join(sorted({type_name(kind) for kind in foreign}))
        raise ConfigError(f"{prefix}{type_name(inner)} holds types that JSON cannot be decoded into: {listed}")
    return parse, lambda: names


def _pydantic_parser(inner: Any, prefix: str) -> tuple[Callable[[bytes], Any], Names]:
    try:
        if is_pydantic_model(inner) and hasattr(inner, "model_validate_json"):
            inner.model_rebuild()  # resolve forward references now, so that errors appear at startup
            parse = _model_parser(inner)
        else:
            parse = sys.modules["pydantic"].TypeAdapter(inner).validate_json
    except Exception as error:
        first = str(error).split("\n", 1)[0]
        raise ConfigError(f"{prefix}cannot decode JSON into {type_name(inner)}: {first}") from error
    found: list[frozenset[str]] = []

    def names() -> frozenset[str]:
        if not found:
            found.append(pydantic_names(inner))
        return found[0]

    return parse, names


def _model_parser(model: Any) -> Callable[[bytes], Any]:
    """`model_validate_json`, or the function that it calls if not overridden: a quarter faster on small values."""
    inherited = sys.modules["pydantic"].BaseModel.model_validate_json.__func__
    if getattr(model.model_validate_json, "__func__", None) is inherited:
        parse: Callable[[bytes], Any] = model.__pydantic_validator__.validate_json
    else:
        parse = model.model_validate_json
    return parse


def _bare(annotation: Any) -> Any:
    """The annotation without `NewType` and `Annotated`."""
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        else:
            return annotation


def _split_none(annotation: Any) -> tuple[Any, bool]:
    """(`X`, whether it was `X | None`); metadata of `Annotated` stays with X, for the library that reads it."""
    bare = _bare(annotation)
    if bare is bytes or bare is str:
        return bare, False
    if get_origin(bare) not in _UNIONS or types.NoneType not in get_args(bare):
        return annotation, False
    inner = functools.reduce(operator.or_, (member for member in get_args(bare) if member is not types.NoneType))
    inner = _split_none(inner)[0]
    metadata = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    for item in metadata:
        inner = Annotated[inner, item]
    return inner, True


def type_name(annotation: Any) -> str:
    """As one would write it."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
