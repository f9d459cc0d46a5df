"""A consumer whose handler uses processes: each record starts one with `multiprocessing`, by fork, and ends it."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

from keepfast import App

JOURNAL = Path(os.environ["SCENARIO_JOURNAL"])
processes = multiprocessing.get_context("fork")
app = App("scenario")


def hang() -> None:
    """In short sleeps: a signal that arrives right before a sleep begins is handled only after it.

    It ends without the interpreter's own end, which may wait for a lock that a thread of the parent held at the fork.
    """
    try:
        note("child")
        while True:
            time.sleep(0.01)
    except KeyboardInterrupt:
        os._exit(1)


def note(text: str) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(f"{text}\n")


@app.consumer(name="handle")
def handle(value: bytes) -> None:
    child = processes.Process(target=hang)
    child.start()
    while not (JOURNAL.exists() and JOURNAL.stat().st_size):
        time.sleep(0.01)
    if value == b"terminate":
        child.terminate()
    else:
        os.kill(child.pid or 0, 2)
    child.join(20)
    note(f"{value.decode()} {child.exitcode}")
    child.kill()
