"""What every place for a spool can do. Blocking; one owner thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from keepfast.deadletters.spool.letters import SpooledLetter


@dataclass(frozen=True, slots=True)
class Head:
    """A letter in a store, without its bytes. `ref` names it for the store and for people."""

    ref: str
    topic: str
    identity: bytes
    size: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Fill:
    """How full a store is. `damaged` tells of bytes that are no letter any more, one line each."""

    letters: int
    held_bytes: int
    oldest_at_ms: int | None = None
    damaged: tuple[str, ...] = ()


Wanted = Callable[[Head], bool]


class Reader(Protocol):
    """What is needed to look into a store. Everything raises SpoolError and nothing else."""

    def open(self) -> None: ...
    def heads(self, limit: int, wanted: Wanted) -> list[Head]: ...
    def read(self, head: Head) -> SpooledLetter: ...
    def fill(self) -> Fill: ...
    def close(self) -> None: ...


class Store(Protocol):
    """Letters, oldest first. Everything raises SpoolError and nothing else."""

    def open(self) -> None:
        """Make it ready; whoever may not write finds out here."""

    def add(self, letters: Sequence[SpooledLetter]) -> list[Head]:
        """When this returns, all of them survive a crash; when it raises, none of them counts.

        What the store knows to have already, by identity, it need not write again (and leaves out of what it returns).
        """

    def try_room(self, size: int) -> None:
        """Raises SpoolError while a letter of this size would be refused. Leaves nothing behind."""

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        """The oldest letters that are wanted."""

    def read(self, head: Head) -> SpooledLetter:
        """Raises SpoolError for one that is damaged."""

    def remove(self, heads: Sequence[Head]) -> None:
        """They need no sending any more. Removing twice does no harm."""

    def lead(self, now: float) -> bool:
        """Whether this process is the one that sends letters on now. Called now and then; may look for more letters."""

    def identities(self) -> Collection[bytes]:
        """Of the letters that are there, as far as the store knows; at most so many as memory allows."""

    def fill(self) -> Fill: ...

    def close(self) -> None:
        """Let go of locks and connections; what is kept stays."""
