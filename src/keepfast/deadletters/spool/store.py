"""The port of the spool's stores. Blocking; one owner thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from keepfast.deadletters.spool.letters import SpooledLetter


@dataclass(frozen=True, slots=True)
class Head:
    """A letter in a store, without its bytes. `ref` is its name in the store and in output."""

    ref: str
    topic: str
    identity: bytes
    size: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Fill:
    """Usage of a store. `damaged`: one line for each range of damaged bytes."""

    letters: int
    held_bytes: int
    oldest_at_ms: int | None = None
    damaged: tuple[str, ...] = ()


Wanted = Callable[[Head], bool]


class Reader(Protocol):
    """Read access to a store. Methods raise SpoolError only."""

    def open(self) -> None: ...
    def heads(self, limit: int, wanted: Wanted) -> list[Head]: ...
    def read(self, head: Head) -> SpooledLetter: ...
    def fill(self) -> Fill: ...
    def close(self) -> None: ...


class Store(Protocol):
    """Stored letters, oldest first. Methods raise SpoolError only."""

    def open(self) -> None:
        """Open it; missing write permission is detected here."""

    def add(self, letters: Sequence[SpooledLetter]) -> list[Head]:
        """When this returns, all of them survive a crash; when it raises, none of them is stored.

        Letters that the store already has, by identity, need not be written again (and are left out of the result).
        """
        ...

    def try_room(self, size: int) -> None:
        """Raises SpoolError while a letter of this size would be refused. Leaves nothing behind."""

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        """The oldest letters that are wanted."""
        ...

    def read(self, head: Head) -> SpooledLetter:
        """Raises SpoolError for one that is damaged."""
        ...

    def remove(self, heads: Sequence[Head]) -> None:
        """Remove letters that were sent. Idempotent."""

    def lead(self, now: float) -> bool:
        """Whether this process sends letters now. Called periodically; may adopt letters of other processes."""
        ...

    def identities(self) -> Collection[bytes]:
        """Identities of the stored letters, as far as known; bounded."""
        ...

    def fill(self) -> Fill: ...

    def close(self) -> None:
        """Release locks and connections; stored letters remain."""
