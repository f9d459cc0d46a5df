"""The confirmation of an order names what the order does, and what has a field too many does nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keepfast.desk_page.orders import ORDERS
from keepfast.http.server import HttpRequest, Response, Server, as_json
from keepfast.telemetry.state import CommandDone
from tests.desk_page.conftest import ServedDesk, serving

CONSUMER = "charge"


class Process:
    """The control API of a process that does whatever it is ordered. `orders`: paths and bodies, as they came."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.server = Server(self._answer)
        self.server.start("127.0.0.1", 0)

    def _answer(self, request: HttpRequest) -> Response:
        if request.method == "POST":
            self.orders.append((request.path, msgspec.json.decode(request.body)))
        return as_json(CommandDone(text="Done.", changed=1))


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.server.stop()


@pytest.fixture
def served(process: Process, tmp_path: Path) -> Iterator[ServedDesk]:
    """Without brokers: orders to processes need none."""
    with serving("127.0.0.1:9", "orders.dlq", tmp_path, process.server.url) as made:
        yield made


RECORD = {"topic": "orders", "partition": "1", "offset": "5"}
DISAGREEING = [
    {"verb": "dead-letter", **RECORD, "hold": "storm"},
    {"verb": "dead-letter", **RECORD, "offset": "5x"},
    {"verb": "dead-letter", **RECORD, "offset": str(2**63)},
    {"verb": "dead-letter", "topic": "orders", "partition": "1"},
    {"verb": "pause", "topic": "orders", "partition": "1x"},
    {"verb": "pause", "topic": "orders", "partition": "-1"},
    {"verb": "pause", "topic": "orders", "partition": ""},
    {"verb": "pause", "topic": ""},
    {"verb": "pause", "partition": "1"},
    {"verb": "pause", "hold": "storm"},
    {"verb": "resume", **RECORD},
    {"verb": "release", "hold": "storm", "topic": "orders"},
    {"verb": "release", "hold": "everything"},
    {"verb": "release"},
    {"verb": "stop"},
    {},
]


def test_a_form_with_a_field_that_is_invalid_or_of_another_verb_is_refused(
    served: ServedDesk, process: Process
) -> None:
    page, where = served.page(), {"process": process.server.url, "consumer": CONSUMER}
    csrf = re.findall(r'name="csrf" value="([^"]+)"', page.get("/consumers").text)[0]
    for given in DISAGREEING:
        asked = page.get("/consumers/order", params={**where, **given})
        assert asked.status_code == 400, given
        posted = page.post("/consumers", data={**where, **given, "csrf": csrf, "why": "INC-2041"})
        assert posted.status_code == 400, given
    assert process.orders == []


def test_a_body_with_a_field_that_is_invalid_or_of_another_verb_is_refused(
    served: ServedDesk, process: Process
) -> None:
    where = {"process": process.server.url, "consumer": CONSUMER, "why": "INC-2041"}
    with served.api() as api:
        for given in DISAGREEING:
            numbers = {name: int(one) for name, one in given.items() if one.removeprefix("-").isdecimal()}
            assert api.post("/control", json={**where, **given, **numbers}).status_code == 400, given
    assert process.orders == []


AGREEING: list[tuple[dict[str, str], str, dict[str, Any]]] = [
    ({"verb": "pause"}, "", {}),
    ({"verb": "pause", "topic": "orders"}, "orders of ", {"topic": "orders"}),
    ({"verb": "resume", "topic": "orders", "partition": "007"}, "orders[7] of ", {"topic": "orders", "partition": 7}),
    ({"verb": "release", "hold": "breaker"}, "the breaker of ", {"hold": "breaker"}),
    ({"verb": "dead-letter", **RECORD}, "orders[1] offset 5 of ", {"topic": "orders", "partition": 1, "offset": 5}),
]


def test_the_form_orders_what_its_confirmation_names(served: ServedDesk, process: Process) -> None:
    page, where = served.page(), {"process": process.server.url, "consumer": CONSUMER}
    for given, meant, body in AGREEING:
        asked = page.get("/consumers/order", params={**where, **given}).text
        title = ORDERS[given["verb"]].title
        assert f'<h1 class="wrap">{title} {meant}{CONSUMER}?</h1>' in unescape(asked)
        form = asked[asked.index('action="/consumers"') :]
        fields = {
            name: unescape(one) for name, one in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)
        }
        posted = page.post("/consumers", data={**fields, "why": "INC-2041"})
        assert "done=ordered" in posted.headers["location"]
        who: dict[str, Any] = {"by": "admin-person", "why": "INC-2041", "via": "page"}
        if given["verb"] == "dead-letter":
            who["unless_running"] = True
        assert process.orders.pop() == (f"/api/consumers/{CONSUMER}/{given['verb']}", {**body, **who})


def test_the_api_needs_a_reason_as_the_page_does_and_says_that_a_running_record_is_meant(
    served: ServedDesk, process: Process
) -> None:
    record = {"topic": "orders", "partition": 1, "offset": 5}
    where = {"process": process.server.url, "consumer": CONSUMER}
    with served.api() as api:
        for verb, more in (("pause", {}), ("release", {"hold": "storm"}), ("dead-letter", record)):
            for why in ("", "  "):
                answer = api.post("/control", json={**where, "verb": verb, **more, "why": why})
                assert (answer.status_code, process.orders) == (400, []), verb
                assert "needs a reason" in answer.text
        assert api.post("/control", json={**where, "verb": "resume"}).status_code == 200
        process.orders.clear()
        order = {**where, "verb": "dead-letter", **record, "why": "INC-2041"}
        assert api.post("/control", json=order).status_code == 200
        assert api.post("/control", json={**order, "running": True}).status_code == 200
        assert [body["unless_running"] for _, body in process.orders] == [True, False]
        assert api.post("/control", json={**where, "verb": "resume", "running": True}).status_code == 400
