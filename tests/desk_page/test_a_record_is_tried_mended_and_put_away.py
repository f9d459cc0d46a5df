"""In a browser: one record is tried with today's handler and sent with another value, a transform mends the others of
its cause, and what nobody needs is archived and purged.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from keepfast.cli.desk import SubprocessTrier
from keepfast.core.records import Record
from keepfast.desk.cases import CaseState
from keepfast.desk.desk import Desk, DeskOptions
from keepfast.desk_page.processes import Processes
from keepfast.desk_page.server import DeskServer, DeskServerOptions
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.broker_client import Client, NewRecord
from tests.support.chromium import chromium
from tests.support.letters import letter
from tests.support.members import connection

pytestmark = pytest.mark.chromium
APP = """
import os
from typing import Any

from keepfast import App, Context

app = App("payments")


@app.consumer(os.environ["SOURCE"], group="payments.charge")
def charge(order: dict[str, Any], ctx: Context) -> None:
    ctx.send("payments.charged.v1", {"in": order["currency"]})
"""
XSS = "<img src=x onerror=window.pwned=1>"


def with_currency(record: Record) -> Record | None:
    order = json.loads(record.value or b"{}")
    return None if order["n"] == 4 else replace(record, value=json.dumps({**order, "currency": "NOK"}).encode())


class Scene:
    """Five letters of one cause, whose records have no currency, and a desk with everything that it can do."""

    def __init__(self, kafka: TopicAdmin, topic: TopicFactory, folder: Path) -> None:
        self.kafka, self.client, self.folder = kafka, Client(kafka), folder
        self.source, self.letters = topic(partitions=1), topic(partitions=1, suffix=".dlq")
        self.desk_topic = topic(partitions=1, suffix=".desk")
        values = [json.dumps({"n": n, "who": XSS}).encode() for n in range(6)]
        self.client.produce(self.source, [NewRecord(value, b"same", (("trace", b"t"),)) for value in values])
        self.client.commit("payments.charge", self.source, 6)
        filed = [
            letter(topic=self.source, partition=0, offset=n, key=b"same", value=values[n], headers=(("trace", b"t"),))
            for n in range(5)
        ]
        file_letters(kafka, self.letters, filed)
        (folder / "app.py").write_text(APP)
        options = DeskOptions(topics=(self.letters,), by="test", desk_topic=self.desk_topic)
        self.desk = Desk(connection(kafka.bootstrap), options)
        self.desk.ensure_topics()

    def server(self) -> DeskServer:
        environ = {
            "SOURCE": self.source,
            "KEEPFAST_DESK_TOPIC": self.desk_topic,
            "PYTHONPATH": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder),
        }
        trier = SubprocessTrier("app:app", self.kafka.bootstrap, **environ)
        transforms = {"repair:with_currency": with_currency}
        options = DeskServerOptions(port=0, trier=trier, transforms=transforms, archive=str(self.folder))
        return DeskServer(self.desk, Processes(), options)

    def sent(self, count: int) -> list[tuple[bytes, dict[str, object], list[str]]]:
        """Key, value and names of headers of the last records."""
        records = self.client.read(self.source, 6 + count)[6:]
        return [(one.key(), json.loads(one.value()), [name for name, _ in one.headers()]) for one in records]


@pytest.fixture
def scene(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(kafka, topic, tmp_path)
    yield made
    made.desk.close()


def test_a_record_is_tried_mended_and_put_away(scene: Scene) -> None:
    with scene.server() as server, chromium() as browser:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_url(f"{server.address}/")
        _try(page, server.address)
        _edit_and_send(page, scene)
        _transform(page, server.address, scene)
        _archive_and_purge(page, server.address, scene)
        page.goto(f"{server.address}/audit")
        actions = {one.strip() for one in page.locator("tbody td:nth-child(3)").all_inner_texts()}
        assert actions == {"try", "reveal", "edit", "replay", "archive", "purge"}
        assert page.evaluate("window.pwned") is None


def _try(page: Page, address: str) -> None:
    page.goto(f"{address}/records")
    page.locator("#list tbody a").last.click()
    expect(page.locator("#later")).to_contain_text("processed already")
    page.locator("#try").click()
    expect(page.locator("#try-dialog")).to_contain_text("Its other effects are real")
    page.get_by_role("button", name="Run it once").click()
    expect(page.locator("#trial h2")).to_contain_text("It fails again", timeout=90_000)
    expect(page.locator("#trial")).to_contain_text("KeyError")


def _edit_and_send(page: Page, scene: Scene) -> None:
    page.locator("#reveal").click()
    page.locator("#edit summary").click()
    value = json.loads(page.locator("#value").input_value())
    page.locator("#value").fill(json.dumps({**value, "currency": "EUR"}, indent=1))
    page.locator("#edit-why").fill("the customer told us")
    page.locator("#send-edited").click()
    page.wait_for_url("**/runs/**")
    [(key, sent, headers)] = scene.sent(1)
    assert (key, sent["currency"], headers) == (b"same", "EUR", ["trace", "keepfast-replay"])


def _transform(page: Page, address: str, scene: Scene) -> None:
    page.goto(f"{address}/records?show=waiting")
    page.locator("#all-rows").check()
    page.get_by_role("button", name="Replay…").click()
    page.locator("#transform").select_option("repair:with_currency")
    page.locator("input[name=to][value=topic]").check()  # the test itself has read it, as another group
    page.locator("#dry-run").click()
    expect(page.locator("#changes .plus", has_text="currency").first).to_contain_text("<text of 3>")
    expect(page.locator(".notice.warn")).to_contain_text("4 of them have a later record of the same key")
    page.locator("#start").click()
    page.wait_for_url("**/runs/**")
    expect(page.locator("#sent")).to_have_text("3", timeout=60_000)
    assert [one["currency"] for _, one, _ in scene.sent(4)] == ["EUR", "NOK", "NOK", "NOK"]


def _archive_and_purge(page: Page, address: str, scene: Scene) -> None:
    page.goto(f"{address}/records?show=waiting")  # the one that the transform has left out
    page.locator("#all-rows").check()
    page.get_by_role("button", name="Put aside…").click()
    page.get_by_role("button", name="Archive").click()
    expect(page.locator(".notice.good")).to_contain_text("1 record archived")
    [archived] = scene.folder.glob("letters-*.jsonl.gz")
    with gzip.open(archived, "rt") as lines:
        assert len(lines.readlines()) == 1
    page.goto(f"{address}/storage")
    expect(page.locator("#verdict h1")).to_have_text("5 letters stored.")  # four are still on their way
    expect(page.get_by_role("button", name="Purge…")).to_be_disabled()
    others = [case.id for case in scene.desk.cases().cases if case.state is CaseState.REPLAYING]
    scene.desk.mark(others, "archived", why="as if they were")
    page.reload()
    page.get_by_role("button", name="Purge…").click()
    page.get_by_role("button", name="Delete 5").click()
    expect(page.locator(".notice.good")).to_contain_text("5 records deleted for good")
    assert scene.client.edges(scene.letters) == (5, 5)
