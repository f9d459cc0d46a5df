"""A spool in memory, lost when the process ends: for tests and trials."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from keepfast.core.errors import SpoolError
from keepfast.deadletters.spool.letters import SpooledLetter, encode
from keepfast.deadletters.spool.store import Fill, Head, Wanted


class MemoryStore:
    """Implements `store.Store`, without durability."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._letters: dict[str, tuple[Head, SpooledLetter]] = {}
        self._identities: dict[bytes, None] = {}
        self._count = 0

    def open(self) -> None: ...

    def add(self, letters: Sequence[SpooledLetter]) -> list[Head]:
        new = {one.identity: (one, len(encode(one))) for one in letters if one.identity not in self._identities}
        self.try_room(sum(size for _, size in new.values()))
        heads = []
        for letter, size in new.values():
            self._count += 1
            head = Head(str(self._count), letter.topic, letter.identity, size, letter.at_ms)
            self._letters[head.ref] = (head, letter)
            self._identities[letter.identity] = None
            heads.append(head)
        return heads

    def try_room(self, size: int) -> None:
        held = self.fill().held_bytes
        if held + size > self._max_bytes:
            raise SpoolError(f"The spool in memory is full: {held:,} of {self._max_bytes:,} bytes.", full=True)

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        found: list[Head] = []
        for head, _ in self._letters.values():
            if len(found) >= limit:
                break
            if wanted(head):
                found.append(head)
        return found

    def read(self, head: Head) -> SpooledLetter:
        if head.ref not in self._letters:
            raise SpoolError(f"Letter {head.ref} is not in the spool.")
        return self._letters[head.ref][1]

    def remove(self, heads: Sequence[Head]) -> None:
        for head in heads:
            if self._letters.pop(head.ref, None) is not None:
                self._identities.pop(head.identity, None)

    def lead(self, now: float) -> bool:  # noqa: ARG002 - as every store
        return True

    def identities(self) -> Collection[bytes]:
        return self._identities.keys()

    def fill(self) -> Fill:
        heads = [head for head, _ in self._letters.values()]
        return Fill(len(heads), sum(head.size for head in heads), min((head.at_ms for head in heads), default=None))

    def close(self) -> None: ...
