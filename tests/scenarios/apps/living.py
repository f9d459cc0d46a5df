"""An app with a lifespan of the kind LIFESPAN_KIND. What happens is appended to the file LIFESPAN_JOURNAL."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from keepfast import App, Halt

KIND = os.environ.get("LIFESPAN_KIND", "")
JOURNAL = Path(os.environ["LIFESPAN_JOURNAL"])
GATE = JOURNAL.with_suffix(".gate")


def note(text: str) -> None:
    with JOURNAL.open("a") as file:
        file.write(f"{text}\n")


def fail(when: str) -> None:
    if f"fails at its {when}" == KIND:
        raise ConnectionError("no database")


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[asyncio.AbstractEventLoop]:
    fail("start")
    note("entered")
    try:
        yield asyncio.get_running_loop()
    finally:
        if KIND == "slow":
            await asyncio.sleep(60)
        fail("end")
        note("left")


@contextmanager
def on_a_thread(app: App) -> Iterator[threading.Thread]:
    note("entered")
    try:
        yield threading.current_thread()
    finally:
        note("left")


app = App("scenario", lifespan=on_a_thread if KIND == "sync" else lifespan)


@app.consumer()
async def work(value: bytes) -> None:
    note(f"begun {value.decode()}")
    if value == b"halt":
        raise Halt("as told")
    if KIND != "sync":
        assert app.resources is asyncio.get_running_loop()
    while not GATE.exists():
        if value == b"block":
            time.sleep(0.01)  # on purpose
        else:
            await asyncio.sleep(0.01)
    note(f"ended {value.decode()}")
