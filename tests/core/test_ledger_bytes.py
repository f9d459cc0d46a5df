"""How many bytes of a partition are in memory: values and keys exactly, headers by one record of each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.ledger import HeldBytes, header_bytes, size_of
from keepfast.core.records import Headers, Message
from tests.support.messages import message

KIB = 1024


class Counting:
    """A message that counts how often its headers were read."""

    def __init__(self, inner: Message) -> None:
        self._inner = inner
        self.reads = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def __len__(self) -> int:
        return len(self._inner)

    def key(self) -> bytes | None:
        return self._inner.key()

    def headers(self) -> Headers | None:
        self.reads += 1
        return self._inner.headers()


def test_values_keys_and_headers_weigh_and_what_is_missing_does_not() -> None:
    assert size_of(message(0, None, value=None)) == 0
    full = message(0, b"key", value=b"value", headers=[("name", b"12"), ("none", None)])
    assert (header_bytes(full), size_of(full)) == (4 + 2 + 4, 3 + 5 + 10)


sizes = st.tuples(st.one_of(st.none(), st.integers(0, 40)), st.one_of(st.none(), st.integers(0, 40)))


@given(st.lists(st.lists(sizes, min_size=1, max_size=6), max_size=6), st.data())
def test_values_and_keys_are_counted_exactly_in_whatever_order_they_are_finished(
    chunks: list[list[tuple[int | None, int | None]]], data: st.DataObject
) -> None:
    held, records = HeldBytes(), list[Message]()
    for chunk in chunks:
        fed = [
            message(
                len(records) + at,
                None if key is None else b"k" * key,
                value=None if value is None else b"v" * value,
                headers=[("h", b"12345")],
            )
            for at, (key, value) in enumerate(chunk)
        ]
        held.receive(len(records), fed)
        records += fed
    left = set(range(len(records)))
    while left:
        start = data.draw(st.sampled_from(sorted(left)))
        stop = next((seq for seq in range(start, len(records)) if seq not in left), len(records))
        stop = data.draw(st.integers(start + 1, stop))
        seqs: Sequence[int] = range(start, stop)
        if data.draw(st.booleans()):  # as of a run over several lanes: with gaps, and not in order
            seqs = data.draw(st.lists(st.sampled_from(sorted(left)), min_size=1, unique=True))
        held.finish(seqs, [records[seq] for seq in seqs])
        left -= set(seqs)
        assert held.total == sum(size_of(records[seq]) for seq in left)
    assert (held.total, held._chunks, held._firsts) == (0, [], [])


def test_headers_are_read_of_one_record_of_each_chunk() -> None:
    held = HeldBytes()
    records = [Counting(message(n, b"k", value=b"v", headers=[("h", b"x" * KIB)])) for n in range(100)]
    held.receive(0, records[:60])  # type: ignore[arg-type]
    held.receive(60, records[60:])  # type: ignore[arg-type]
    assert sum(one.reads for one in records) == 2
    assert held.total == 100 * (2 + 1 + KIB), "and stand for the others"
    held.finish(range(100), records)  # type: ignore[arg-type]
    assert (held.total, sum(one.reads for one in records)) == (0, 2)


def test_of_a_chunk_that_ends_as_a_whole_no_record_is_looked_at_again() -> None:
    """Whether its records come back as a stretch or one lane after another."""
    records = [message(n, b"key", value=b"v") for n in range(6)]
    for seqs in (range(6), [0, 1, 2, 3, 4, 5], [3, 0, 4, 1, 5, 2]):
        held = HeldBytes()
        held.receive(0, records[:3])
        held.receive(3, records[3:])
        held.finish(seqs, [cast(Message, object())] * 6)
        assert held.total == 0


def test_a_large_record_that_stays_is_not_forgotten_among_small_ones_that_go() -> None:
    held = HeldBytes()
    records = [message(n, b"k" * (KIB * KIB if n == 99 else 1), value=b"") for n in range(100)]
    held.receive(0, records)
    held.finish(range(99), records[:99])
    assert held.total == KIB * KIB
    held.finish((99,), records[99:])
    assert held.total == 0
