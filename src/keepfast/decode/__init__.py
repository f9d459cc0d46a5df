"""Decodes a record's bytes into the type that the handler's annotation names."""

from __future__ import annotations

from keepfast.decode.annotation import Decoder, Tombstones, decoder_for
from keepfast.decode.signature import HandlerShape, inspect_handler, positional

__all__ = ["Decoder", "HandlerShape", "Tombstones", "decoder_for", "inspect_handler", "positional"]
