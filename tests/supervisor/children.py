"""A supervisor as a process of its own, over small programs that stand for the app.

    children = Children(tmp_path, body="report(); stop_on_signal()")
    with children.supervised(processes=2) as supervisor:
        children.wait_for("0 up", "1 up")

`body` is the child's program. It has `index`, `fd` and `again` as the supervisor gave them; `note(text)` writes a line
`<index> <text>` into the journal that the test reads.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import DEADLINE_S, wait_until

PARENT = """
import json, signal, sys
from keepfast.telemetry import logs
from keepfast.supervisor import ChildWatch, LivenessPolicy, RestartPolicy, ShutdownPolicy, Supervisor

program, journal, processes, restart, shutdown, liveness = sys.argv[1:]
logs.configure(format="json")
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have begun the tests

def command(spec):
    return [sys.executable, program, str(spec.index), str(spec.parent_fd), str(int(spec.restarted)), journal]

watch = None
if liveness != "null":
    addresses = {index: f"unix:{journal}.{index}.sock" for index in range(int(processes))}
    watch = ChildWatch(addresses, LivenessPolicy(**json.loads(liveness)))
    watch.start()

supervisor = Supervisor(
    command,
    processes=int(processes),
    restart=RestartPolicy(**json.loads(restart)),
    shutdown=ShutdownPolicy(**json.loads(shutdown)),
    watch=watch,
)
sys.exit(supervisor.run())
"""

PRELUDE = """
import os, signal, sys, time

index, fd, again, journal = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4]

def note(text):
    with open(journal, "a") as file:
        file.write(f"{index} {text}\\n")

def report(timeout_s=0.3):
    os.write(fd, b'{"shutdown_timeout_s": %f}\\n' % timeout_s)

def serve(live=lambda: True):
    # Answers the supervisor as a running app does.
    from keepfast.http.server import Server, as_json
    from keepfast.telemetry.state import HealthReport, Reason
    bad = (Reason(code="event_loop_blocked", level="failing", text="It is blocked.", fails_live=True),)
    def answer(request):
        good = live()
        return as_json(HealthReport(status="ok", live=good, ready=good, started=True, reasons=() if good else bad))
    Server(answer).start(f"unix:{journal}.{index}.sock", 0)

def sleep_long():
    for _ in range(600):
        time.sleep(0.1)
    sys.exit("nobody ended this child")

def stop_on_signal(code=0, after_s=0.0):
    # Ends after_s seconds after the first signal, and notes how many came.
    came = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: came.append(signal.Signals(number).name))
    note("up")
    while not came:
        time.sleep(0.02)
    note("stopping")
    time.sleep(after_s)
    note("got " + "+".join(came))
    sys.exit(code)

def ignore_signals():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: note("ignored " + signal.Signals(number).name))
    note(f"up {os.getpid()}")
    sleep_long()

"""


class Supervised:
    """The running supervisor."""

    def __init__(self, process: subprocess.Popen[bytes], printed: Path) -> None:
        self.process = process
        self._printed = printed

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def log(self) -> str:
        """What it has printed so far."""
        return self._printed.read_text()

    def events(self, name: str) -> list[dict[str, object]]:
        """What it logged under that name; all of it once it has ended."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]


class Children:
    """The child's program and the journal that all children of one test write."""

    def __init__(self, folder: Path, body: str) -> None:
        self.program = folder / "child.py"
        self.program.write_text(PRELUDE + body)
        self.journal = folder / "journal"
        self.journal.touch()

    @contextmanager
    def supervised(
        self,
        *,
        processes: int = 1,
        restart: dict[str, float] | None = None,
        shutdown: dict[str, float] | None = None,
        liveness: dict[str, float] | None = None,
    ) -> Iterator[Supervised]:
        quick = {"first_delay_s": 0.05, "max_delay_s": 0.2, **(restart or {})}
        soon = {"margin_s": 10.0, **(shutdown or {})}
        policies = [json.dumps(one) for one in (quick, soon, liveness)]
        arguments = [str(self.program), str(self.journal), str(processes), *policies]
        printed = Path(f"{self.journal}.log")
        with printed.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", PARENT, *arguments],
                stdout=output,
                stderr=output,
                process_group=0,  # a terminal's Ctrl-C goes to a group; this is the one it would go to
            )
        with process:
            try:
                yield Supervised(process, printed)
            finally:
                if process.poll() is None:
                    process.kill()

    def notes(self) -> list[str]:
        return self.journal.read_text().splitlines()

    def wait_for(self, *texts: str) -> None:
        """Until each of these lines is in the journal."""
        wait_until(lambda: all(text in self.notes() for text in texts), f"{texts} in {self.journal}")


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
