"""What a handler has left behind, such as a thread of asyncio.to_thread that hangs, does not keep the process alive."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from keepfast.cli.run import EXIT_GRACE_S
from tests.support.command import keepfast

APP = """
import asyncio, pathlib, time
from keepfast import App

class Leaving(App):
    def run(self, **more):
        asyncio.run(self.give_up())
        pathlib.Path("ended").write_text(str(time.time()))
        return 4

    async def give_up(self):
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
        asyncio.get_running_loop().shutdown_default_executor = self.nothing

    async def nothing(self, *_): ...

app = Leaving("payments")

@app.consumer("orders.payment.v1")
async def charge(payment: dict) -> None: ...
"""


@pytest.mark.timing
def test_a_thread_that_never_ends_is_named_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    ran = keepfast("run", "app:app", "--log-format", "json", cwd=tmp_path)
    assert ran.returncode == 4, ran.stderr
    assert time.time() - float((tmp_path / "ended").read_text()) < EXIT_GRACE_S + 20
    assert "threads_left_behind" in ran.stdout + ran.stderr
    assert "asyncio_0" in ran.stdout + ran.stderr
