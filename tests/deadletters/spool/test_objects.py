"""What is special about a spool of objects: an upload may fail half-way, and then a name proves nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry

from keepfast.core.errors import Fault, SpoolError
from keepfast.core.ports import Kept
from keepfast.deadletters.spool.objects import PARTIAL, PARTIAL_MS, RELIST_S, SUFFIX, ObjectStore
from keepfast.deadletters.spool.store import Head
from keepfast.deadletters.spool.worker import Keep, SpoolWorker
from keepfast.engine.clock import RealClock
from tests.deadletters.spool.letters import letter, outgoing
from tests.support.fakes import FakeSink, refuse


class Share(LocalFileSystem):  # type: ignore[misc]
    """Files that are reached through a network: a write may end half-way, and then nothing can be removed either.

    `store`: as a service of which nothing is known. `posix`: as one that is known to rename in one step.
    """

    protocol: Any = "store"
    failing: str = ""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if Share.failing and (SUFFIX in path):
            Path(path).write_bytes(value[: len(value) // 2])
            if Share.failing == "unnoticed":
                return
            raise OSError(errno.ENOSPC, "No space left on device")
        super().pipe_file(path, value, mode, **options)

    def rm_file(self, path: str) -> None:
        if Share.failing:
            raise OSError(errno.EIO, "Input/output error")
        super().rm_file(path)


class Posix(Share):
    protocol = ("posix", "sftp")


@pytest.fixture(params=["store", "posix"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    for name, kind in (("store", Share), ("posix", Posix)):
        fsspec.register_implementation(name, kind, clobber=True)
    Share.failing = ""
    yield f"{request.param}://{tmp_path}"
    Share.failing = ""
    for name in ("store", "posix"):
        _registry.pop(name, None)


def opened(url: str, **options: Any) -> ObjectStore:
    store = ObjectStore(url, app="a", max_bytes=10**6, **options)
    store.open()
    return store


def everything(head: Head) -> bool:
    return True


def objects(url: str) -> list[Path]:
    return sorted((Path(url.partition("://")[2]) / "a").iterdir())


def test_an_upload_that_failed_half_way_never_counts_as_kept(url: str) -> None:
    store = opened(url)
    worker = SpoolWorker(store, FakeSink(refuse(Fault.RETRY)), RealClock(), lambda answer: None)
    answers: list[Kept | SpoolError] = []
    Share.failing = "noticed"
    worker.take([Keep(outgoing(1), answers.append)], 100.0)
    worker.step(100.0)
    worker.step(100.0 + RELIST_S + 1)  # the store is listed again
    worker.take([Keep(outgoing(1), answers.append)], 117.0)
    assert [type(one) for one in answers] == [SpoolError, SpoolError]
    assert not worker.knows(letter(1).identity)
    Share.failing = ""
    worker.take([Keep(outgoing(1), answers.append)], 118.0)
    assert answers[-1] == Kept()
    worker.step(200.0)
    (head,) = opened(url).heads(10, everything)
    assert opened(url).read(head).identity == letter(1).identity, "the torn one is gone and the whole one is there"


def test_a_second_try_in_the_same_millisecond_is_not_taken_for_the_torn_first(url: str) -> None:
    store = opened(url)
    Share.failing = "noticed"
    with pytest.raises(SpoolError):
        store.add([letter(1)])
    Share.failing = ""
    store.add([letter(1)])
    store.lead(0.0)  # the store is listed again, and what is torn removed
    (head,) = store.heads(10, everything)
    assert store.read(head) == letter(1)
    assert len(objects(url)) == 2, "the letter, and the lease"


def test_a_letter_is_read_back_where_a_rename_may_not_be_atomic(tmp_path: Path, url: str) -> None:
    store = opened(url.replace("posix", "store"))
    Share.failing = "unnoticed"
    with pytest.raises(SpoolError, match="reads back differently"):
        store.add([letter(1)])
    assert letter(1).identity not in store.identities()


@pytest.mark.usefixtures("url")
def test_where_a_rename_is_atomic_a_torn_upload_never_has_the_name_of_a_letter(tmp_path: Path) -> None:
    url = f"posix://{tmp_path}"
    store = opened(url)
    Share.failing = "noticed"
    with pytest.raises(SpoolError):
        store.add([letter(1)])
    Share.failing = ""
    assert [path.suffix for path in objects(url)] == [PARTIAL]
    assert opened(url).heads(10, everything) == [], "another process does not take it for a letter"


def test_a_torn_object_of_a_dead_process_is_replaced_when_its_letter_comes_again(url: str) -> None:
    opened(url).add([letter(1)])
    (path,) = objects(url)
    path.write_bytes(path.read_bytes()[:-3])
    store = opened(url)
    assert letter(1).identity not in store.identities()
    assert len(store.add([letter(1, at_ms=9_000)])) == 1
    (head,) = opened(url).heads(10, everything)
    assert store.read(head) == letter(1, at_ms=9_000)


def test_a_letter_that_another_process_wrote_is_read_before_it_counts(url: str) -> None:
    opened(url).add([letter(1)])
    store = opened(url)
    assert letter(1).identity not in store.identities(), "so far it is only a name"
    assert store.add([letter(1, at_ms=9_000)]) == []
    assert letter(1).identity in store.identities()
    assert len(objects(url)) == 1


def test_what_a_dead_process_left_half_written_is_cleared_after_an_hour(tmp_path: Path, url: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    left = folder / f"{1_000:013d}-orders.dlq-{'0' * 32}-{'0' * 16}{SUFFIX}{PARTIAL}"
    left.write_bytes(b"half")
    assert opened(url, wall=lambda: PARTIAL_MS / 1000).heads(10, everything) == []
    assert left.exists(), "its writer may still be at it"
    opened(url, wall=lambda: PARTIAL_MS / 1000 + 2)
    assert not left.exists()
