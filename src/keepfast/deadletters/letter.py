"""The contents of a dead letter, independent of the wire format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, Literal

from keepfast.core.inbox import RecordOrigin
from keepfast.core.policies import LetterFormat
from keepfast.core.replays import ReplayMark
from keepfast.core.schemas import SchemaRef

ForeignFormat = Literal["spring", "connect", "streams", "share", "unknown"]
AnyFormat = LetterFormat | ForeignFormat
TimestampType = Literal["NoTimestampType", "CreateTime", "LogAppendTime"]
TIMESTAMP_TYPES: Final[tuple[TimestampType, ...]] = ("NoTimestampType", "CreateTime", "LogAppendTime")
"""Indexed by the client's number; named as in Java."""

MAX_MESSAGE = 4_000
MAX_STACK = 16_000
MAX_REASON = 1_000
MAX_NAME = 300
"""Of types, codes, handlers."""
MAX_GROUP = 1_000
MAX_ID = 2_000
MAX_ATTEMPTS = 50
"""Attempts listed individually: the first few and the last ones. `retry_count` counts all of them."""
FIRST_ATTEMPTS = 5

Bytes = bytes | None
Headers = tuple[tuple[str, Bytes], ...]


@dataclass(frozen=True, slots=True)
class Attempted:
    """One failed attempt: when (wall clock) and with what."""

    at_ms: int
    error_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record that could not be processed, and why. Unknown texts are empty, other unknown fields are None.

    `key`, `value` and `headers` are the original's, byte for byte; `exact` is False only for a foreign JSON letter that
    does not specify the encoding of its value. Topic, partition and offset are None if a foreign letter lacks them
    or has invalid ones.
    """

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp_ms: int | None = None
    timestamp_type: TimestampType = "CreateTime"
    key: Bytes
    value: Bytes
    headers: Headers
    exact: bool = True

    error_type: str = ""
    error_class: str = ""
    """With its module, as a traceback names it."""
    error_cause: str = ""
    """The class of the error that it was raised from in the first place; without one, its own."""
    error_message: str = ""
    error_code: str = ""
    classification: str = ""
    reason: str = ""
    fingerprint: str = ""
    stack_trace: str = ""

    failed_at_ms: int | None = None
    retry_count: int = 0
    attempts: tuple[Attempted, ...] = ()

    group: str = ""
    handler: str = ""
    app_version: str = ""
    trace_id: str = ""
    origin: RecordOrigin | None = None
    """Where the record was first, if it is a repetition of another; see `core.inbox`."""
    replay: ReplayMark | None = None
    """The replay that the record came from; None if it had not been replayed."""
    schema: SchemaRef | None = None
    """The registered schema that the record was written with, where its topic has one."""
    format: AnyFormat = "unknown"

    @property
    def replay_count(self) -> int:
        """How often the record had been replayed before."""
        return self.replay.n if self.replay is not None else 0

    @property
    def replayed_from(self) -> str:
        """The case that it was replayed for."""
        return self.replay.case if self.replay is not None else ""

    @property
    def id(self) -> str:
        """One record of one group has one letter, however often it is published. Empty if its origin is unknown."""
        if self.topic is None or self.partition is None or self.offset is None:
            return ""
        return letter_id(self.group, self.topic, self.partition, self.offset)

    @property
    def identity(self) -> bytes:
        """Equal for copies of the same letter only.

        The id is not enough: a topic that was deleted and recreated gives the same offsets to other records, and a
        record that was replayed for its group alone fails again at the same place.
        """
        parts: list[Bytes] = [self.id.encode("utf-8", "replace"), str(self.timestamp_ms).encode(), self.key, self.value]
        for name, value in self.headers:
            parts += [name.encode("utf-8", "replace"), value]
        return _digest([*parts, str(self.replay_count).encode()] if self.replay_count else parts)

    @property
    def record_identity(self) -> bytes | None:
        """Equal for all letters of one record, whichever group wrote them and however often; None if its origin is
        unknown. Key, value and timestamp count as well as the place: see `identity`.
        """
        if self.topic is None or self.partition is None or self.offset is None:
            return None
        place = letter_id("", self.topic, self.partition, self.offset)
        return _digest([place.encode("utf-8", "replace"), str(self.timestamp_ms).encode(), self.key, self.value])


def _digest(parts: Iterable[Bytes]) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(b"-" if part is None else b"%d:" % len(part) + part)
    return digest.digest()


def letter_id(group: str, topic: str, partition: int, offset: int) -> str:
    return f"{group}/{topic}/{partition}/{offset}"


def within_limits(letter: Letter) -> Letter:
    """Texts cut to their limits: of a stack the end is kept, of everything else the beginning."""
    attempts = letter.attempts
    if len(attempts) > MAX_ATTEMPTS:
        attempts = attempts[:FIRST_ATTEMPTS] + attempts[FIRST_ATTEMPTS - MAX_ATTEMPTS :]
    return replace(
        letter,
        error_type=letter.error_type[:MAX_NAME],
        error_class=letter.error_class[:MAX_NAME],
        error_cause=letter.error_cause[:MAX_NAME],
        error_message=letter.error_message[:MAX_MESSAGE],
        error_code=letter.error_code[:MAX_NAME],
        classification=letter.classification[:MAX_NAME],
        reason=letter.reason[:MAX_REASON],
        stack_trace=letter.stack_trace[-MAX_STACK:],
        attempts=tuple(Attempted(one.at_ms, one.error_type[:MAX_NAME]) for one in attempts),
        handler=letter.handler[:MAX_NAME],
        app_version=letter.app_version[:MAX_NAME],
    )
