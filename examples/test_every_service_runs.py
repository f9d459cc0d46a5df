"""One short pass over each service, in a process of its own, on a real Kafka and a real PostgreSQL; `make examples` has
the long one, with all faults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module

import pytest

from examples.__main__ import NAMES
from examples.database import Database
from examples.stage.stage import Stage, opened
from keepfast.testing.pytest_plugin import BOOTSTRAP_VARIABLE
from keepfast.testing.topics import TopicAdmin


@pytest.fixture(scope="module")
def whole_stage(kafka: TopicAdmin) -> Iterator[Stage]:
    with opened(kafka) as stage:
        yield stage
        if os.environ.get(BOOTSTRAP_VARIABLE):  # an external broker must be left clean for the next run
            for name in stage.made:
                kafka.delete_topic(name)


@pytest.fixture
def stage(whole_stage: Stage) -> Iterator[Stage]:
    """With nothing left of a story when its test ends."""
    yield whole_stage
    whole_stage.clear()


def test_there_are_six() -> None:
    assert NAMES == ["card_fraud", "deals_escrow", "institution_enhancement", "invoices", "swapi_people", "worker_loop"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_and_everything_is_where_it_belongs(name: str, stage: Stage) -> None:
    account = import_module(f"examples.{name}.story").story(stage, short=True)
    assert account.is_right, "\n".join(account.lines())
    assert account.expected, "there was something to lose"


@pytest.mark.parametrize("name", ["deals_escrow", "swapi_people", "worker_loop"])
def test_the_pool_is_closed_when_the_lifespan_ends(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `invoices` and `institution_enhancement` the story checks it."""
    service = import_module(f"examples.{name}.service")
    monkeypatch.setattr(service, "database", database := Database("postgresql://127.0.0.1:9/none"))
    with service.lifespan(service.app):
        assert not database.pool.closed
    assert database.pool.closed
