"""Orders to a running consumer from the page: only where they make sense, and never by one click."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import expect

from keepfast import RetryPolicy
from keepfast.desk import Case, Desk
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.desk_page.conftest import CONTROL_TOKEN, serving
from tests.support.broker_client import Client, NewRecord
from tests.support.chromium import chromium
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.web import web_of

WHY = "the customer called, INC-2041"


def cases_of(desk: Desk) -> Sequence[Case]:
    desk.refresh()
    return desk.cases().cases


@pytest.mark.chromium
def test_a_record_is_dead_lettered_after_a_confirmation_that_names_it_and_with_a_reason(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=3)
    app, gate = app_for(kafka), threading.Event()

    @app.consumer(
        name,
        order="partition",
        concurrency=3,
        retry=RetryPolicy(initial_delay_ms=600_000, max_delay_ms=600_000),
        stuck_after_s=2,
    )
    def charge(value: bytes) -> None:
        if value == b"wait":
            raise ConnectionError("refused")
        gate.wait(DEADLINE_S)

    letters = next(iter(app.settings(environ={}, cwd=tmp_path).consumers["charge"].dead_letter_topics.values()))
    with (
        RunningApp(app) as running,
        web_of(running, token=CONTROL_TOKEN) as web,
        serving(kafka.bootstrap, letters, tmp_path, web.url) as served,
        chromium() as browser,
    ):
        running.wait_assigned(3)
        Client(kafka).produce(name, [NewRecord(b"wait", partition=0), NewRecord(b"hang", partition=1)])
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.goto(f"{served.address}/login#token={served.tokens['admin']}")
        page.wait_for_url(f"{served.address}/")
        page.goto(f"{served.address}/consumers")
        lane = page.locator(".lane", has_text=f"{name}[1] 0")
        expect(lane.locator(".badge").first).to_have_text("stuck", timeout=60_000)
        Client(kafka).produce(name, [NewRecord(b"run", partition=2)])
        busy = page.locator(".lane", has_text=f"{name}[2] 0")
        expect(busy.locator(".badge").first).to_have_text("running", timeout=60_000)
        expect(busy.get_by_role("button", name="Dead-letter…")).to_have_count(0)
        waiting = page.locator(".lane", has_text=f"{name}[0] 0")
        waiting.get_by_role("button", name="Dead-letter…").click()
        expect(page.locator("h1")).to_have_text(f"Dead-letter {name}[0] offset 0 of charge?")
        page.locator("#give-order").click()
        assert "/consumers/order" in page.url, "the browser asks for the reason"
        page.locator("#why").fill(WHY)
        page.locator("#give-order").click()
        expect(page.locator(".notice.good")).to_have_text("Done.")
        wait_until(lambda: running.loop.counts.total().dead_lettered == 1, "it is dead-lettered")
        found = wait_until(lambda: cases_of(served.desk), "its letter")
        stored = served.desk.letter(found[0].letter)
        assert stored is not None
        assert stored.letter.error_message.startswith(f"dead-lettered by admin-person: {WHY}; its last error was")
        assert (stored.letter.partition, stored.letter.offset) == (0, 0)
        text = unescape(served.page("viewer").get("/consumers").text)
        assert "Dead-letter…" not in text
        assert "Pause…" not in text
        assert served.page("viewer").get("/consumers/order?verb=pause&consumer=charge").status_code == 403
        gate.set()
