"""What every place for a spool does alike."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.core.errors import SpoolError
from keepfast.deadletters.spool.places import store_at
from keepfast.deadletters.spool.store import Head, Store
from tests.deadletters.spool.letters import letter
from tests.support.s3 import S3

MakeStore = Callable[..., Store]
CAP = 100_000


@pytest.fixture(params=["file", "memory", "postgresql", "s3"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Stores at one place, opened; a second one finds what the first has left."""
    match request.param:
        case "file":
            url = f"file://{tmp_path}/spool"
        case "postgresql":
            url = request.getfixturevalue("postgres")
        case "s3":
            found: S3 = request.getfixturevalue("s3")
            url = f"s3://{found.bucket()}/letters"
        case _:
            url = "memory://"
    app = f"app-{uuid.uuid4().hex[:6]}"
    made: list[Store] = []

    def make(*, max_bytes: int = CAP, of: str = app) -> Store:
        store = store_at(url, app=of, max_bytes=max_bytes)
        store.open()
        made.append(store)
        return store

    make.survives = request.param != "memory"  # type: ignore[attr-defined]
    yield make
    for store in made:
        store.close()


def everything(head: Head) -> bool:
    return True


def test_letters_come_back_as_they_were_oldest_first(make: MakeStore) -> None:
    store = make()
    written = [letter(number) for number in range(5)]
    store.add(written[:2])
    store.add(written[2:])
    heads = store.heads(10, everything)
    assert [store.read(head) for head in heads] == written
    assert [(head.topic, head.identity, head.at_ms) for head in heads] == [
        (one.topic, one.identity, one.at_ms) for one in written
    ]
    assert len(store.heads(3, everything)) == 3
    assert [head.at_ms for head in store.heads(10, lambda head: head.at_ms != 1_002)] == [1_000, 1_001, 1_003, 1_004]


def test_what_is_removed_is_gone_and_the_rest_stays(make: MakeStore) -> None:
    store = make()
    store.add([letter(number) for number in range(4)])
    heads = store.heads(10, everything)
    store.remove(heads[1:3])
    store.remove(heads[1:3])
    assert store.heads(10, everything) == [heads[0], heads[3]]
    assert store.fill().letters == 2
    store.remove([heads[0], heads[3]])
    assert store.heads(10, everything) == []
    assert store.fill().letters == 0


def test_one_letter_is_kept_once_by_its_identity(make: MakeStore) -> None:
    store = make()
    store.add([letter(1, at_ms=5), letter(1, at_ms=6), letter(2)])
    store.add([letter(1, at_ms=7)])
    assert len(store.heads(10, everything)) == 2
    assert set(store.identities()) == {letter(1).identity, letter(2).identity}
    store.remove(store.heads(10, lambda head: head.identity == letter(1).identity))
    assert letter(1).identity not in store.identities()


def test_another_store_at_the_same_place_finds_what_was_left(make: MakeStore) -> None:
    first = make()
    first.add([letter(number) for number in range(3)])
    first.remove(first.heads(1, everything))
    first.close()
    second = make()
    kept = [second.read(head) for head in second.heads(10, everything)]
    assert kept == ([letter(1), letter(2)] if make.survives else [])  # type: ignore[attr-defined]
    assert set(second.identities()) == {one.identity for one in kept}


def test_apps_do_not_see_each_others_letters(make: MakeStore) -> None:
    one, other = make(), make(of="another")
    one.add([letter(1)])
    assert other.heads(10, everything) == []
    assert other.fill().letters == 0


def test_a_store_that_is_full_says_so_and_takes_what_fits(make: MakeStore) -> None:
    store = make(max_bytes=20_000)
    store.add([letter(1, size=5_000)])
    with pytest.raises(SpoolError) as refused:
        store.add([letter(2, size=30_000)])
    assert refused.value.full
    assert "full" in str(refused.value)
    store.add([letter(3, size=100)])
    assert [head.at_ms for head in store.heads(10, everything)] == [1_001, 1_003]
    store.remove(store.heads(1, everything))
    store.add([letter(4, size=8_000)])


def test_room_is_tried_without_leaving_anything_behind(make: MakeStore) -> None:
    store = make(max_bytes=20_000)
    store.add([letter(1, size=5_000)])
    before = store.fill()
    store.try_room(5_000)
    with pytest.raises(SpoolError) as refused:
        store.try_room(19_000)
    assert refused.value.full
    assert store.fill() == before
    assert [head.at_ms for head in store.heads(10, everything)] == [1_001]
    store.remove(store.heads(1, everything))
    store.try_room(19_000)


def test_one_process_sends_letters_on_at_a_time(make: MakeStore) -> None:
    first, second = make(), make()
    first.add([letter(1)])
    assert first.lead(0.0)
    seen = [head for head in second.heads(10, everything) if second.lead(0.0)]
    assert seen == [], "what the first one sees to, the second one leaves alone"


def test_null_values_and_odd_names_come_back(make: MakeStore) -> None:
    store = make()
    odd = letter(1).__class__(
        topic="a-b.C_d-1",
        partition=None,
        key=None,
        value=None,
        headers=(("", None), ("ключ", b"\xff\x00"), ("ключ", b"")),
        timestamp_ms=7,
        identity=bytes(range(16)),
        id="",
        at_ms=9,
    )
    store.add([odd])
    (head,) = store.heads(10, everything)
    assert store.read(head) == odd
    assert head.topic == "a-b.C_d-1"
