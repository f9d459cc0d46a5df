"""A letter as stored in the spool: the record to be sent, and the identity that detects copies."""

from __future__ import annotations

import msgspec

from keepfast.core.errors import SpoolError
from keepfast.core.records import Outgoing, Record
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read


class SpooledLetter(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Written as MessagePack. New fields go to the end and have a default, so that older letters stay readable."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    identity: bytes
    """Equal for copies of the same letter only (`Letter.identity`)."""
    id: str
    """group/topic/partition/offset, for people."""
    at_ms: int
    """When it was spooled, by the wall clock."""

    @property
    def outgoing(self) -> Outgoing:
        return Outgoing(
            topic=self.topic,
            value=self.value,
            key=self.key,
            headers=self.headers,
            partition=self.partition,
            timestamp_ms=self.timestamp_ms,
        )

    @property
    def letter(self) -> Letter:
        return letter_of(self.outgoing)


def letter_of(outgoing: Outgoing) -> Letter:
    """The record for the dead-letter topic."""
    return read(Record(outgoing.topic, 0, 0, outgoing.key, outgoing.value, tuple(outgoing.headers), None))


def spooled(outgoing: Outgoing, *, at_ms: int) -> SpooledLetter:
    letter = letter_of(outgoing)
    return SpooledLetter(
        topic=outgoing.topic,
        partition=outgoing.partition,
        key=outgoing.key,
        value=outgoing.value,
        headers=tuple(outgoing.headers),
        timestamp_ms=outgoing.timestamp_ms,
        identity=letter.identity,
        id=letter.id,
        at_ms=at_ms,
    )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SpooledLetter)


def encode(letter: SpooledLetter) -> bytes:
    """Raises SpoolError."""
    try:
        return _encoder.encode(letter)
    except (UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise SpoolError(f"The letter {letter.id} cannot be serialised: {type(error).__name__}.") from error


def decode(payload: bytes) -> SpooledLetter:
    """Raises SpoolError: the checksum matches, but the contents are of another program or a later version."""
    try:
        return _decoder.decode(payload)
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise SpoolError(
            "A spooled letter cannot be read: was it written by a later version of keepfast?", damaged=True
        ) from error
