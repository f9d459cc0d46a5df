"""The page about hooks: what Sentry gets from its example, and what structlog writes; each in a process of its own,
because both change the process that they are set up in.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.blocks import ROOT, of

SENTRY = """
import sentry_sdk
from sentry_sdk.transport import Transport

sent = []

class Kept(Transport):
    def capture_envelope(self, envelope):
        sent.append(envelope.get_event())

_init = sentry_sdk.init
sentry_sdk.init = lambda **options: _init(dsn="http://key@127.0.0.1:9/1", transport=Kept(), **options)
"""

SEND = """
import asyncio, json, logging, sys
from keepfast.telemetry.logs import get_logger
from keepfast.testing.harness import harness

async def story():
    async with harness(app) as h:
        await h.send("orders.payment.v1", {"id": "a1", "amount": -5})
        await h.send("orders.payment.v1", {"id": "a2", "amount": 5})

asyncio.run(story())
"""


def run(name: str, tmp_path: Path, before: str, after: str) -> subprocess.CompletedProcess[str]:
    [block] = [one for one in of("python") if one.page == "docs/how-to/hooks.md" and name in one.text]
    (tmp_path / "story.py").write_text(before + block.text + SEND + after)
    command = [sys.executable, str(tmp_path / "story.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_sentry_gets_message_stack_and_tags_of_a_dead_letter_once(tmp_path: Path) -> None:
    shown = run("sentry_sdk", tmp_path, SENTRY, "\nprint(json.dumps(sent))")
    [event] = json.loads(shown.stdout)
    [error] = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("Reject", "payment a1 has a negative amount")
    frame = error["stacktrace"]["frames"][-1]
    assert (frame["function"], "vars" in frame) == ("charge", False)
    assert event["tags"].items() >= {"consumer": "charge", "topic": "orders.payment.v1", "code": "REJECTED"}.items()
    assert event["contexts"]["record"]["offset"] == 0


def test_structlog_writes_our_lines_beside_the_apps(tmp_path: Path) -> None:
    after = """
from keepfast.telemetry import logs
logs.configure(format=app.settings(environ={}).log.format)
get_logger("keepfast.consumer").warning("dead_lettering", topic="orders.payment.v1", offset=3, password="hidden")
"""
    lines: list[dict[str, Any]] = [json.loads(one) for one in run("structlog", tmp_path, "", after).stderr.splitlines()]
    ours = [line for line in lines if line["logger"].startswith("keepfast")]
    assert ours[-1].items() >= {"event": "dead_lettering", "level": "warning", "offset": 3}.items()
    assert "hidden" not in str(ours)
    [first, second] = [line for line in lines if line["event"] == "charging"]
    assert (first["payment"], second["payment"], second["amount"]) == ("a1", "a2", 5)
