"""The value of a letter as JSON, where it was written with a schema of the registry."""

from __future__ import annotations

import json
from typing import Any

from keepfast.core.errors import DecodeError, Discard, RegistryError
from keepfast.core.schemas import Avro, JsonSchema
from keepfast.deadletters.letter import Letter
from keepfast.decode.schemas import SchemaDecoder, SchemaSource


def decoded(letter: Letter, source: SchemaSource | None) -> bytes | None:
    """The value as JSON; None if it has no schema, if it is Protobuf, or if it cannot be read. Asks the registry of
    `source`, which must ask at once, and blocks meanwhile.
    """
    schema = letter.schema
    if source is None or schema is None or letter.value is None or schema.format == "protobuf":
        return None
    reader = Avro() if schema.format == "avro" else JsonSchema()
    decode = SchemaDecoder(letter.topic or "", reader, dict[str, Any], source=source)
    try:
        data = decode.read(letter.value, letter.headers)
    except (DecodeError, Discard, RegistryError):
        return None
    return json.dumps(data, default=str, ensure_ascii=False).encode()
