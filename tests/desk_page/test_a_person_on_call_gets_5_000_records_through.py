"""The person on call, by the page in a browser: 5,000 records have failed for four causes. Find the cause, see two
samples differ, dry run, canary of 10, replay all, watch 4,990 come through and 10 fail again, discard, restore, audit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from keepfast import Reject
from keepfast.desk.cases import CaseState
from keepfast.desk.desk import Desk, DeskOptions
from keepfast.desk_page.processes import Processes
from keepfast.desk_page.server import DeskServer, DeskServerOptions
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.chromium import chromium
from tests.support.members import connection
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.chromium
TIMEOUT_MS = 240_000


class Shop:
    """A handler that fails for four reasons until it is mended, and then only for what stays broken."""

    def __init__(self, broken: set[int]) -> None:
        self.mended = False
        self._broken = broken

    def handle(self, order: dict[str, Any]) -> None:
        if self.mended:
            if order["n"] in self._broken:
                raise Reject("the customer does not exist", code="NO_CUSTOMER")
            return
        match order["n"] % 4:
            case 0:
                order["currency"]
            case 1:
                raise ValueError(f"coupon {order['n']} has expired")
            case 2:
                raise Reject("the address is incomplete", code="ADDRESS")
            case _:
                raise TypeError("total must be a number")


def orders(count: int) -> list[NewRecord]:
    found = []
    for n in range(count):
        order: dict[str, Any] = {"n": n, "total": n * 3}
        if n < count // 2:
            order["gift"] = "yes"
        found.append(NewRecord(json.dumps(order).encode(), b"customer-%d" % (n % 97)))
    return found


@pytest.mark.parametrize(("count", "canary", "bad"), [(80, 5, 3), pytest.param(5_000, 10, 10, marks=pytest.mark.long)])
def test_a_person_on_call_gets_records_through(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path, *, count: int, canary: int, bad: int
) -> None:
    name = topic(partitions=4)
    shop = Shop({count - 1 - 2 * n for n in range(bad)})
    app = app_for(kafka)

    @app.consumer(name, order="key", concurrency=8, storm_guard=False)
    def ship(order: dict[str, Any]) -> None:
        shop.handle(order)

    letters = next(iter(app.settings(environ={}, cwd=tmp_path).consumers["ship"].dead_letter_topics.values()))
    desk = Desk(connection(kafka.bootstrap), DeskOptions(topics=(letters,), by="test"))
    desk.ensure_topics()
    try:
        with (
            RunningApp(app) as running,
            DeskServer(desk, Processes(), DeskServerOptions(port=0)) as server,
            chromium() as browser,
        ):
            running.wait_assigned(4)
            Client(kafka).produce(name, orders(count))
            wait_until(lambda: running.loop.counts.total().dead_lettered == count, "all have failed", timeout_s=120)
            page = browser.new_page()
            page.goto(server.url)
            expect(page.locator("#verdict em")).to_have_text(f"{count:,}", timeout=60_000)
            _look_at_the_cause(page)
            shop.mended = True  # the fix is deployed
            _replay_everything(page, server.address, count, canary, bad)
            _put_aside_and_restore(page, server.address, bad)
            desk.refresh()
            assert desk.summary().counts == {CaseState.RESOLVED: count - bad, CaseState.OPEN: bad}
            _read_the_audit(page, server.address)
    finally:
        desk.close()


def _look_at_the_cause(page: Page) -> None:
    expect(page.locator(".cause")).to_have_count(4)
    page.locator(".cause", has_text="KeyError").locator("a").click()
    expect(page.locator("h1")).to_contain_text("The field currency is missing")
    expect(page.locator(".diff tr.differs td").first).to_have_text("gift")


def _replay_everything(page: Page, address: str, count: int, canary: int, bad: int) -> None:
    page.goto(address)
    page.get_by_role("link", name=f"Replay {count:,}…").click()
    expect(page.locator("h1")).to_have_text(f"Replay {count:,} records")
    page.locator("#canary").fill(str(canary))
    page.locator("#dry-run").click()
    expect(page.locator("#start")).to_contain_text(f"{canary} first", timeout=60_000)
    page.locator("#start").click()
    page.wait_for_url("**/runs/**")
    expect(page.locator("#succeeded")).to_have_text(f"{count - bad:,}", timeout=TIMEOUT_MS)
    expect(page.locator("#failed-again")).to_have_text(f"{bad:,}", timeout=TIMEOUT_MS)
    expect(page.locator("h1")).to_have_text(f"{count - bad:,} came through, {bad:,} failed again.", timeout=60_000)


def _put_aside_and_restore(page: Page, address: str, bad: int) -> None:
    page.goto(address)
    expect(page.locator("#verdict em")).to_have_text(str(bad))
    page.locator(".cause a").first.click()
    expect(page.locator("#list tbody .badge.warn").first).to_have_text("failed again ×1")
    page.locator("#all-rows").check()
    page.get_by_role("button", name="Put aside…").click()
    page.locator("#why").fill("no such customer")
    page.get_by_role("button", name="Discard").click()
    expect(page.locator(".notice.good")).to_contain_text(f"{bad} records marked as discarded")
    page.goto(f"{address}/discarded")
    expect(page.locator("tbody tr")).to_have_count(bad)
    expect(page.locator("tbody tr").first).to_contain_text("no such customer")
    page.locator("#all-rows").check()
    page.get_by_role("button", name="Restore").click()
    expect(page.locator(".notice.good")).to_contain_text(f"{bad} records restored")


def _read_the_audit(page: Page, address: str) -> None:
    page.goto(f"{address}/audit")
    actions = page.locator("tbody td:nth-child(3)").all_inner_texts()
    assert [one.strip() for one in actions[:3]] == ["restore", "discard", "replay"]
    expect(page.locator("tbody")).to_contain_text("no such customer")
