"""A frozen broker: pages are there at once with what was read before, and go on by themselves when it answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from keepfast.desk import cluster
from keepfast.desk_page import pulse
from keepfast.testing import KafkaBroker
from keepfast.testing.topics import TopicAdmin
from tests.desk_page.conftest import ServedDesk, serving
from tests.desk_page.test_page import SCREENS, csrf_of
from tests.support.broker_client import Client
from tests.support.desk_scene import records
from tests.support.waiting import wait_until

SILENT = "The brokers have been silent since"
COUNT = 40
AT_ONCE_S = 1.0
FIRST_S = pulse.SILENCE_TIMEOUT_S + AT_ONCE_S


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    """One of its own, because it is frozen."""
    with KafkaBroker() as made:
        yield made


@pytest.fixture
def silenced(broker: KafkaBroker, tmp_path: Path) -> Iterator[ServedDesk]:
    letters = broker.create_topic("orders.dlq", partitions=4)
    Client(broker).produce(letters, records(COUNT))
    with serving(broker.bootstrap, letters, tmp_path) as served:
        yield served


def timed(page: httpx.Client, path: str) -> tuple[httpx.Response, float]:
    began = time.monotonic()
    answer = page.get(path)
    return answer, time.monotonic() - began


def shows(page: httpx.Client, waiting: int) -> bool:
    """Whether the start page says that this many records wait, and nothing of silence."""
    text = page.get("/").text
    return f"<em>{waiting}</em>" in text and SILENT not in text


def noticed(page: httpx.Client) -> list[float]:
    """Read the start page until it says that the brokers are silent; returns how long each reading took."""
    took: list[float] = []

    def says_so() -> bool:
        answer, took_s = timed(page, "/")
        took.append(took_s)
        return SILENT in answer.text

    wait_until(says_so, "the page notices the silence")
    return took


@pytest.mark.timing
def test_every_page_is_there_at_once_and_goes_on_when_the_broker_does(
    broker: KafkaBroker, silenced: ServedDesk
) -> None:
    page = silenced.page("admin")
    start = page.get("/").text
    assert f"<em>{COUNT}</em>" in start
    case = silenced.desk.cases(size=1).cases[0]
    cause = silenced.desk.causes()[0]
    broker.pause()
    first_s = noticed(page)
    assert max(first_s) < FIRST_S, first_s
    assert f"<em>{COUNT}</em>" in page.get("/").text
    took = {}
    for path in (*SCREENS, f"/causes/{cause.fingerprint}", f"/message?id={case.id}"):
        answer, took[path] = timed(page, path)
        assert SILENT in answer.text, path
        assert answer.status_code == (503 if path in ("/audit", "/storage") else 200), path
    assert max(took.values()) < AT_ONCE_S, took
    began = time.monotonic()
    refused = page.post("/mark", data={"csrf": csrf_of(start), "case": case.id, "do": "discard", "back": "/"})
    with silenced.api() as api:
        answered = api.get("/summary")
    assert time.monotonic() - began < 2 * AT_ONCE_S
    assert (refused.status_code, answered.status_code) == (503, 503)
    assert "Nothing was done" in refused.text
    broker.resume()
    Client(broker).produce(silenced.letters, records(5))
    wait_until(lambda: shows(page, COUNT + 5), "it goes on")


def test_it_goes_on_after_a_freeze_and_a_restart_on_the_same_port(broker: KafkaBroker, silenced: ServedDesk) -> None:
    page = silenced.page("admin")
    assert shows(page, COUNT)
    broker.pause()
    noticed(page)
    broker.restart()
    Client(broker).produce(silenced.letters, records(5))
    wait_until(lambda: shows(page, COUNT + 5), "it goes on")


def test_a_client_that_hangs_is_replaced(
    kafka: TopicAdmin, served: ServedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is never released stands for a call that never returns."""
    monkeypatch.setattr(cluster, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(pulse, "PROBE_S", 0.5)
    Client(kafka).produce(served.letters, records(COUNT))
    page = served.page("admin")
    assert shows(page, COUNT)
    hung = served.desk.cluster._clients
    assert hung.asking.acquire(timeout=60)
    noticed(page)
    Client(kafka).produce(served.letters, records(5))
    wait_until(lambda: shows(page, COUNT + 5), "new clients")
    assert served.desk.cluster._clients is not hung
    hung.asking.release()


def test_consumers_asks_the_brokers_for_members_only_when_a_person_does(kafka: TopicAdmin, served: ServedDesk) -> None:
    """A request for a group that is open when its coordinator dies can crash the client, and the desk with it."""
    Client(kafka).produce(served.letters, records(COUNT))
    page, card = served.page("viewer"), 'id="groups"'
    assert card not in page.get("/consumers").text
    assert card in page.get("/consumers?members=1").text
    assert card not in page.get("/consumers?members=1", headers={"x-desk-live": "1"}).text
