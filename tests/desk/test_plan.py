"""A plan warns of later records of the same key, but not of those that it sends itself, in order."""

from __future__ import annotations

from typing import Any

from keepfast.core.records import Record, RecordPlace
from keepfast.desk.cases import Case, CaseState
from keepfast.desk.index import hash_of_key
from keepfast.desk.plan import Planner, ReplayPolicy, later_of, later_records


class Log:
    """Stands for the cluster: one partition with records of these keys."""

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys

    def topics(self, names: list[str]) -> dict[str, object]:
        return {name: object() for name in names}

    def spans(self, _: str) -> dict[int, tuple[int, int]]:
        return {0: (0, len(self._keys))}

    def read(self, topic: str, spans: dict[int, tuple[int, int]]) -> list[Record]:
        low, high = spans[0]
        return [Record(topic, 0, at, self._keys[at], b"", (), None) for at in range(low, high)]

    def committed(self, _: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, 3)


def case(offset: int, key: bytes) -> Case:
    return Case(
        id=f"g/t/0/{offset}",
        group="g",
        topic="t",
        partition=0,
        offset=offset,
        letter=RecordPlace("t.dlq", 0, offset),
        letters=1,
        first_ms=0,
        last_ms=0,
        state=CaseState.OPEN,
        replays=0,
        failed_again=0,
        reported=True,
        limit_reached=False,
        fingerprint="",
        error_type="",
        message="",
        code="",
        place="",
        fields=(),
        key_hash=hash_of_key(key),
    )


def later(log: Any, *chosen: Case) -> tuple[int, bool]:
    planner = Planner("t.dlq", ReplayPolicy(), lambda _: 1)
    for one in chosen:
        planner.add(one)
    return later_records(log, planner)


def test_a_later_record_counts_unless_it_is_sent_again_itself() -> None:
    assert later(Log(b"a", b"a", b"b"), case(0, b"a"), case(1, b"a")) == (0, False)
    assert later(Log(b"a", b"a", b"a"), case(0, b"a"), case(1, b"a")) == (2, False)
    assert later(Log(b"a", b"b", b"a", b"b"), case(0, b"a"), case(2, b"a"), case(1, b"b")) == (1, False)


def test_of_one_record_it_is_known_whether_later_ones_were_processed() -> None:
    log: Any = Log(b"a", b"a", b"a", b"b")
    found = later_of(log, case(0, b"a"))
    assert found is not None
    assert (found.count, found.newest, found.processed) == (2, 2, True)
    behind = later_of(Log(b"a", b"b", b"b", b"a"), case(0, b"a"))  # type: ignore[arg-type]
    assert behind is not None
    assert not behind.processed
    assert later_of(log, case(3, b"b")) is None
