"""A search among many suspects ends when all were handed out: what a lane holds back of them is not waited for."""

from __future__ import annotations

import pytest

from keepfast.core.commit_metadata import CompletionMap, encode
from keepfast.core.crash_guard import ONE_BY_ONE, UNKNOWN
from simulation.oracle.cover import Cover
from simulation.oracle.suspicion import Suspicion

BASE = 55


@pytest.mark.parametrize(("suspects", "left"), [(ONE_BY_ONE, True), (ONE_BY_ONE + 1, False)])
def test_the_rest_is_forgotten_where_there_were_many(suspects: int, *, left: bool) -> None:
    suspicion = suspicion_of(suspects)
    suspicion.end_search()
    assert suspicion.is_suspect(BASE + suspects - 1) == left


def test_those_behind_the_end_of_the_log_do_not_make_many() -> None:
    suspicion = suspicion_of(1_000)
    suspicion.limit(BASE + ONE_BY_ONE)
    suspicion.end_search()
    assert suspicion.is_suspect(BASE)


def suspicion_of(suspects: int) -> Suspicion:
    """Of an owner that finds so many records from `BASE` on, and that the killer is among the first of them."""
    metadata = encode(CompletionMap(BASE), guard=f"m{suspects},p{suspects},n1")
    return Suspicion(Cover(BASE, metadata), UNKNOWN, left_by="p1.1", member="p1.2", end=BASE)
