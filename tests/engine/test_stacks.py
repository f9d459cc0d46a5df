"""Where threads are, asked while others start and end and the garbage collector is at work."""

from __future__ import annotations

import gc
import subprocess
import sys

ASKED_WHILE_THREADS_COME_AND_GO = """
import gc, threading, time
from keepfast.engine.stacks import threads_now

def come_and_go():
    while True:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

threading.Thread(target=come_and_go, daemon=True).start()
for _ in range(40):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
gc.callbacks.append(lambda *_: time.sleep(0.0005))
gc.set_threshold(3)
for _ in range(500):
    assert len(threads_now()) >= 42
assert gc.isenabled()
print("done")
"""


def test_asking_where_threads_are_never_stops_the_process() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", ASKED_WHILE_THREADS_COME_AND_GO], capture_output=True, text=True, timeout=30, check=True
    )
    assert asked.stdout.split() == ["done"]
    assert gc.isenabled()
