"""A signal may interrupt the main thread anywhere, also while it is just about to wait for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROUNDS = 100

STAND_IN = """
import os, signal, sys, threading, time
from types import SimpleNamespace
from keepfast.engine import lifecycle

lifecycle.TICK_S = 0  # so the main thread is nearly always about to wait


class Thread:
    ending, loop = None, SimpleNamespace(ending=None, halted=None)

    def __init__(self):
        self.over = threading.Event()
        self.mailbox = SimpleNamespace(post=lambda _: self.over.set())

    def start(self):
        threading.Thread(target=self.ask).start()

    def ask(self):
        time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)


for _ in range(int(sys.argv[1])):
    lifecycle.Lifecycle([Thread()], shutdown_timeout_s=30).run(lambda _: None)
print("ended each time")
"""


def test_a_signal_that_comes_just_before_the_main_thread_waits_is_heard(tmp_path: Path) -> None:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    ran = subprocess.run([sys.executable, script, str(ROUNDS)], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "ended each time"), ran.stderr
