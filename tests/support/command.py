"""The command `keepfast` as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keepfast.testing.jars import cache_dir
from tests.support import command_server
from tests.support.waiting import DEADLINE_S

KEEPFAST = [sys.executable, "-P", "-m", "keepfast"]

APP = """
from keepfast import App

app = App("payments")

@app.consumer("orders.payment.v1")
def charge(payment: dict) -> None:
    print(payment)
"""


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would set keepfast or colours up."""
    dropped = ("KEEPFAST_", "KAFKA_", "RETRY_", "MAX_RETR", "NO_COLOR", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    # Somebody's `keepfast dev` that runs on this machine is not for a test to find.
    own = str(Path(tempfile.gettempdir(), f"keepfast-test-{os.getpid()}"))
    # Nor is what it has read of dead letters; Kafka's jars are for all.
    return {**kept, "XDG_RUNTIME_DIR": own, "XDG_CACHE_HOME": own, "KEEPFAST_CACHE_DIR": str(cache_dir()), **more}


def keepfast(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return command_server.run(arguments, cwd=cwd, env=environment(**variables), timeout_s=DEADLINE_S)


@contextmanager
def running(*arguments: str, cwd: Path, printed: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run it in the background; both its outputs go to the file `printed`."""
    with printed.open("ab") as output:
        process = subprocess.Popen(
            [*KEEPFAST, *arguments], cwd=cwd, env=environment(**variables), stdout=output, stderr=output
        )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
