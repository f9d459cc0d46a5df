"""The consumer of the scenarios: it writes down what it handles, and does with each record what the record says.

A record's value is a JSON object (`tests.scenarios.scene.Work`): how long to take, which gate to wait for, how often to
fail. Any other value is handled at once. Variables: SCENARIO_JOURNAL (the file), SCENARIO_IDEMPOTENT, SCENARIO_ASYNC,
SCENARIO_SLEEP_S (what every record takes at least), SCENARIO_GATES (added to the name of every gate, so that a member
has gates of its own).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

from keepfast import App, Context, Discard, Halt, Reject, RetryLater

GATE_POLL_S = 0.005
JOURNAL = os.open(os.environ["SCENARIO_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
GATES = os.environ.get("SCENARIO_GATES", "")
SLEEP_S = float(os.environ.get("SCENARIO_SLEEP_S", "0"))

app = App("scenario")


def write_down(what: str, ctx: Context, name: str = "handle") -> None:
    """One line, in one write: after kill -9 it is there whole or not at all."""
    line = {
        "pid": os.getpid(),
        "what": what,
        "consumer": name,
        "topic": ctx.topic,
        "partition": ctx.partition,
        "offset": ctx.offset,
        "key": None if ctx.key is None else ctx.key.hex(),
        "attempt": ctx.attempt,
        "at": time.monotonic(),
        "wall_ms": time.time() * 1000,
    }
    os.write(JOURNAL, (json.dumps(line) + "\n").encode())


def work_of(value: bytes | None) -> dict[str, Any]:
    try:
        work = json.loads(value or b"")
    except ValueError:
        return {}
    return work if isinstance(work, dict) else {}


def is_shut(work: dict[str, Any]) -> bool:
    """Whether the record waits for a gate, which is a file that the test makes."""
    return "gate" in work and not Path(work["gate"] + GATES).exists()


def speak(work: dict[str, Any], ctx: Context, name: str = "handle") -> None:
    """Fail as the record says."""
    if ctx.attempt > work.get("failures", 0):
        return
    write_down("fail", ctx, name)
    match work.get("error", ""):
        case "halt":
            raise Halt("the record says so")
        case "reject":
            raise Reject("the record says so")
        case "discard":
            raise Discard("the record says so")
        case "later":
            raise RetryLater(after_s=work["after_s"])
        case "away":
            raise ConnectionRefusedError("the record says so")
        case "exit":
            os._exit(work.get("code", 1))
        case _:
            raise RuntimeError("the record says so")


def handle_as(name: str, value: bytes | None, ctx: Context) -> None:
    write_down("start", ctx, name)
    work = work_of(value)
    time.sleep(max(SLEEP_S, work.get("sleep_s", 0.0)))
    while is_shut(work):
        time.sleep(GATE_POLL_S)
    speak(work, ctx, name)
    write_down("end", ctx, name)


def handle(value: bytes | None, ctx: Context) -> None:
    handle_as("handle", value, ctx)


async def handle_async(value: bytes | None, ctx: Context) -> None:
    write_down("start", ctx)
    work = work_of(value)
    await asyncio.sleep(max(SLEEP_S, work.get("sleep_s", 0.0)))
    while is_shut(work):
        match work.get("manners"):
            case "stubborn":  # hears that it is cancelled, and continues
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(GATE_POLL_S)
            case "blocking":  # as a call of a library that knows nothing of event loops
                time.sleep(GATE_POLL_S)
            case _:
                await asyncio.sleep(GATE_POLL_S)
    speak(work, ctx)
    write_down("end", ctx)


# Scenarios dead-letter as many records as they like: the storm guard has its own.
app.consumer(name="handle", idempotent=bool(os.environ.get("SCENARIO_IDEMPOTENT")), storm_guard=False)(
    handle_async if os.environ.get("SCENARIO_ASYNC") else handle
)
