"""Places for spools: a PostgreSQL and an S3 of our own, each for the whole session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.classify.postgres import running
from tests.spool.places import S3, moto


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with running() as url:
        yield url


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with moto() as found, found.in_the_environment():
        yield found
