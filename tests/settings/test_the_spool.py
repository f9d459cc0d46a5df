from __future__ import annotations

import pytest

from keepfast.settings import Secret
from tests.settings.loader import Loader

URL = "postgresql://keepfast:hunter2@db/spool"


def test_there_is_no_spool_by_default(loader: Loader) -> None:
    found = loader.load().spool
    assert (found.url, found.max_bytes) == (None, 1024**3)


def test_a_place_is_set_in_code_in_the_file_or_by_a_variable(loader: Loader) -> None:
    for reported in ({"spool": "file:///var/spool"}, {"spool": {"url": "file:///var/spool", "max_bytes": 10}}):
        assert loader.load(settings=reported).spool.url == Secret("file:///var/spool")
    assert loader.load(settings=reported).spool.max_bytes == 10
    assert loader.load(toml='spool = "s3://bucket/letters"').spool.url == Secret("s3://bucket/letters")
    for name in ("KEEPFAST_SPOOL", "KEEPFAST_SPOOL_URL"):
        assert loader.load({name: URL}, settings=reported).spool.url == Secret(URL)


def test_the_place_is_not_shown(loader: Loader) -> None:
    settings = loader.load({"KEEPFAST_SPOOL": URL})
    assert "hunter2" not in f"{settings!r} {settings.spool} {dict(settings.origins)}"


@pytest.mark.parametrize(
    ("wrong", "because"),
    [
        ("/var/spool", "scheme"),
        ("hunter2@db", "scheme"),
        ("file://var/spool", "absolute folder"),
        ("file://", "absolute folder"),
        ("s3://", "nothing follows"),
        ("Postgres URL://hunter2", "scheme"),
    ],
)
def test_a_wrong_place_is_described_and_not_repeated(loader: Loader, wrong: str, because: str) -> None:
    problem = loader.problem({"KEEPFAST_SPOOL_URL": wrong})
    assert because in problem
    assert "hunter2" not in problem


def test_it_is_not_a_consumers_own(loader: Loader) -> None:
    assert "for the whole app" in loader.problem(spool="file:///var/spool")
