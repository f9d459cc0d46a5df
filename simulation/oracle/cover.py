"""What a commit says: all below its offset is finished, and what its completion map names; and the guard's words."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.core import commit_metadata


class Cover:
    """One commit, read as a set of offsets."""

    __slots__ = ("completion", "guard", "offset")

    def __init__(self, offset: int, metadata: str = "", topic_id: str = "") -> None:
        self.offset = offset
        self.completion, self.guard = commit_metadata.read(metadata, offset=offset, topic_id=topic_id)

    def __contains__(self, offset: int) -> bool:
        return offset < self.offset or offset in self.completion

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cover) and (self.offset, self.completion, self.guard) == (
            other.offset,
            other.completion,
            other.guard,
        )

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return True

    def named(self) -> Iterator[int]:
        """The offsets that the map names."""
        bits, offset = self.completion.to_int(), self.completion.base
        while bits:
            if bits & 1:
                yield offset
            bits >>= 1
            offset += 1

    def __str__(self) -> str:
        named = list(self.named())
        return f"{self.offset}+{named}" if named else str(self.offset)
