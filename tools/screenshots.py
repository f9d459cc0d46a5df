"""Pictures of the desk's screens for the docs: `python -m tools.screenshots`. Needs Chromium and a broker (Java).

Light and dark, and some at the width of a phone. The scene is made: a shop with letters of four causes, a consumer that
has a record in flight, and a few actions.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from playwright.sync_api import Browser, Page

from keepfast import App, Context, RetryPolicy
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.desk import Desk, DeskOptions
from keepfast.desk_page.processes import Processes
from keepfast.desk_page.server import DeskServer, DeskServerOptions
from keepfast.testing import KafkaBroker
from tests.support.broker_client import Client, NewRecord
from tests.support.chromium import chromium
from tests.support.desk_scene import records
from tests.support.members import connection

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
TOPIC, LETTERS, COUNT, TOKEN = "shop.order.v1", "shop.order.dlq", 1_204, "control-of-the-scene"
WIDE, PHONE = {"width": 1320, "height": 900}, {"width": 390, "height": 844}


def main(folder: Path = PICTURES) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        server, screens = stack.enter_context(scene())
        browser = stack.enter_context(chromium())
        screens["run"] = _replayed(
            _logged_in(browser, server, "light", WIDE), f"{server.address}{screens.pop('replayed')}"
        )
        for theme in ("light", "dark"):
            page = _logged_in(browser, server, theme, WIDE)
            for name, path in screens.items():
                _picture(page, f"{server.address}{path}", folder / f"desk-{name}-{theme}.png", dry_run=name == "plan")
        phone = _logged_in(browser, server, "light", PHONE)
        _picture(phone, f"{server.address}/", folder / "desk-failures-phone.png")
    print(f"{len(list(folder.glob('desk-*.png')))} pictures in {folder}")


def _logged_in(browser: Browser, server: DeskServer, theme: str, size: dict[str, int]) -> Page:
    page = browser.new_context(
        viewport=size,  # type: ignore[arg-type]
        color_scheme=theme,  # type: ignore[arg-type]
        device_scale_factor=1,
    ).new_page()
    page.goto(server.url)
    page.wait_for_url(f"{server.address}/")
    return page


def _replayed(page: Page, plan: str) -> str:
    """Replay a cause; returns the path of its run."""
    page.goto(plan)
    page.click("#dry-run")
    page.click("#start")
    page.wait_for_url("**/runs/**")
    page.wait_for_timeout(20_000)
    return urlsplit(page.url).path


def _picture(page: Page, url: str, path: Path, *, dry_run: bool = False) -> None:
    page.goto(url)
    if dry_run:
        page.click("#dry-run")
    page.wait_for_selector("main")
    page.wait_for_timeout(400)
    page.screenshot(path=path, full_page=True)


@contextmanager
def scene() -> Iterator[tuple[DeskServer, dict[str, str]]]:
    """A desk and the addresses of its screens by name."""
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker())
        for topic in (TOPIC, LETTERS):
            broker.create_topic(topic, partitions=4)
        client = Client(broker)
        client.produce(LETTERS, records(COUNT))
        client.produce(TOPIC, [NewRecord(b'{"n": %d}' % n, b"customer-%d" % (n % 7)) for n in range(400)])
        desk = Desk(connection(broker.bootstrap), DeskOptions(topics=(LETTERS,), by="ada"))
        stack.callback(desk.close)
        desk.ensure_topics()  # before the consumer starts, which looks for it then
        url = stack.enter_context(_consumer(broker.bootstrap))
        desk.refresh()
        screens = _act(desk)
        processes = Processes((url,), TOKEN)
        server = stack.enter_context(DeskServer(desk, processes, DeskServerOptions(port=0)))
        yield server, screens


def _act(desk: Desk) -> dict[str, str]:
    """A few actions, and the addresses of what they concern."""
    causes = desk.causes()
    small = [case.id for case in desk.cases(CaseFilter(causes=frozenset({causes[-1].fingerprint}))).cases]
    desk.mark(small[:12], "discarded", why="test orders of the load test, see INC-2041")
    desk.acting_as("grace", "page").mark(small[12:15], "permanently-failed", why="customer was refunded by hand")
    desk.acting_as("grace", "page").mark(small[:2], "restored", why="these two are real")
    first = desk.cases(CaseFilter(causes=frozenset({causes[0].fingerprint}))).cases[0]
    desk.note(first.id, "asked the checkout team: orders before 12:40 have no currency")
    desk.reveal(first.letter)
    return {
        "failures": "/",
        "cause": f"/causes/{causes[0].fingerprint}",
        "message": f"/message?id={quote(first.id)}",
        "plan": f"/replay?cause={causes[0].fingerprint}",
        "replayed": f"/replay?cause={causes[1].fingerprint}",
        "runs": "/runs",
        "discarded": "/discarded",
        "consumers": "/consumers",
        "timeline": "/timeline",
        "audit": "/audit",
        "storage": "/storage",
    }


@contextmanager
def _consumer(bootstrap: str) -> Iterator[str]:
    """A consumer that has one record in flight and one that waits for its retry; yields the URL of its server."""
    end = threading.Event()
    app = App(
        "shop",
        kafka={"brokers": bootstrap},
        health={"host": "127.0.0.1", "port": 0},
        control={"token": TOKEN},
        shutdown={"timeout_s": 5},
    )

    @app.consumer(
        TOPIC,
        group="shop.ship",
        order="key",
        concurrency=4,
        retry=RetryPolicy(initial_delay_ms=600_000, max_delay_ms=600_000),
    )
    def ship(_: bytes, ctx: Context) -> None:
        if ctx.offset == 3 and ctx.partition == 0:
            end.wait(300)
        if ctx.offset == 5 and ctx.partition in (1, 2):
            raise ConnectionError("carrier.internal refused the connection")

    running = RunningService(app)
    with running:
        time.sleep(6)
        yield running.url
        end.set()


class RunningService:
    """The app with its server, on a thread of this process."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.url = ""

    def __enter__(self) -> RunningService:
        import uvicorn

        self._app.start()
        config = uvicorn.Config(self._app.asgi, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
        self._server = uvicorn.Server(config)
        threading.Thread(target=self._server.run, daemon=True).start()
        while not self._server.started:
            time.sleep(0.05)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        try:
            self._app.stop()
        except Exception as error:  # noqa: BLE001 - a scene that ends late is still a scene
            print(error, file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
