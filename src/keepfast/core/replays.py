"""What the runtime and the desk share about replayed records: the header that such a record carries, and the fact that
says what became of it.

The header is `keepfast-replay: <case>;<run>;<n>`, always the last one, and once for each case that the record is sent
for. It travels through retry topics, and is copied to the letter if the record fails again. It is untrusted input: a
record is reported only by the group and for the topic that its case names, and the desk believes a case only if it
knows the send.
"""

from __future__ import annotations

import gc
import json
from dataclasses import dataclass
from operator import methodcaller
from typing import Final, Literal

from keepfast.core.records import Headers, Message, Outgoing
from keepfast.core.retry_topics import digits, utf8

REPLAY: Final = "keepfast-replay"
MAX_HEADER: Final = 2_000
MAX_N: Final = 1_000_000
DESK_TOPIC: Final = "keepfast.desk"
"""The default name."""
OUTCOME: Final = "outcome"

OutcomeKind = Literal["succeeded", "discarded"]


@dataclass(frozen=True, slots=True)
class ReplayMark:
    """Which replay of which case a record is; `n` counts the replays of the case from 1."""

    case: str
    run: str
    n: int

    @classmethod
    def of(cls, headers: Headers, group: str = "") -> ReplayMark | None:
        """The mark in these headers that is about a case of this group, else the last one; None if none is valid."""
        found = [mark for name, value in headers if name == REPLAY and (mark := cls.parse(value)) is not None]
        own = [mark for mark in found if group and mark.case.startswith(f"{group}/")]
        return own[-1] if own else found[-1] if found else None

    @classmethod
    def parse(cls, value: bytes | None) -> ReplayMark | None:
        parts = utf8(value, MAX_HEADER).rsplit(";", 2)
        n = digits(parts[2].encode(), MAX_N) if len(parts) == 3 else None
        if not n or not all(parts) or len(value or b"") > MAX_HEADER:
            return None
        return cls(parts[0], parts[1], n)

    @property
    def header(self) -> tuple[str, bytes]:
        return REPLAY, f"{self.case};{self.run};{self.n}".encode()

    def is_about(self, group: str, topic: str) -> bool:
        """Whether the case belongs to this group and is about a record of this topic."""
        return self.case.startswith(f"{group}/{topic}/")


_headers_of = methodcaller("headers")  # see core.records


def is_replayed(message: Message) -> bool:
    """Whether its last header is that of a replay. For every record that is received where there is a desk: a record
    without headers costs one call.
    """
    headers: Headers | None
    try:
        headers = _headers_of(message)
    except SystemError:
        headers = _headers_of(message)
    if not headers:
        return False
    last = headers[-1]
    return len(gc.get_referents(last)) == 2 and last[0] == REPLAY


def replay_topic(source: str, group: str) -> str:
    """Where records are replayed for one group alone."""
    return f"{source}.{group}.replay"


def outcome_record(desk_topic: str, mark: ReplayMark, kind: OutcomeKind, *, at_ms: int, code: str = "") -> Outgoing:
    """The fact that says what became of a replayed record."""
    fields = {"outcome": kind, "at": at_ms} | ({"code": code} if code else {})
    return Outgoing(
        desk_topic, json.dumps(fields).encode(), key=f"{OUTCOME}/{mark.case}/{mark.run}".encode(), partition=0
    )
