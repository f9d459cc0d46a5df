"""From a record's bytes to what the handler asked for, chosen once by the annotation."""

from __future__ import annotations

from keepfast.decode.annotation import Decoder, Tombstones, decoder_for
from keepfast.decode.signature import HandlerShape, inspect_handler, positional

__all__ = ["Decoder", "HandlerShape", "Tombstones", "decoder_for", "inspect_handler", "positional"]
