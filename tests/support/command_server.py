"""`keepfast` in a process that has imported everything already.

To import is most of what a short command takes, and a good part of what a member of a scenario takes; the tests start
hundreds of them. One process imports once and then forks itself for every call. The fork is a process of its own, with
its own environment, folder, signals and end.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from select import select

import keepfast

# It says "began <pid>" and "ended <pid> <code>". A child that has ended is waited for at once: nothing remains of it.
SERVER = """
import gc, importlib, json, os, pkgutil, runpy, select, signal, sys

import keepfast.cli

for found in pkgutil.iter_modules(keepfast.cli.__path__):
    importlib.import_module(f"keepfast.cli.{found.name}")
import keepfast.app.assembly

# As in the foreground: where the tests run in the background, SIGINT is ignored, and every process would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

def children():
    ends, heard, poll = {}, b"", select.poll()
    poll.register(0, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in ends:
                poll.unregister(fd)
                os.close(fd)
                pid = ends.pop(fd)
                print("ended", pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
                continue
            more = os.read(0, 65536)
            if not more:
                sys.exit()
            *lines, heard = (heard + more).split(b"\\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    for end in ends:
                        os.close(end)
                    return json.loads(line)
                end = os.pidfd_open(pid)
                ends[end] = pid
                poll.register(end, select.POLLIN)
                print("began", pid, flush=True)

# What is imported stays: no fork looks through it for garbage, which would copy its pages.
gc.collect()
gc.freeze()

call = children()
for fd, path in enumerate((os.devnull, call["out"], call["err"])):
    opened = os.open(path, os.O_RDWR | os.O_APPEND)
    os.dup2(opened, fd)
    os.close(opened)
os.chdir(call["cwd"])
os.environ.clear()
os.environ.update(call["env"])
sys.path[:0] = call["path"]
sys.stdout.reconfigure(write_through="PYTHONUNBUFFERED" in call["env"])
sys.argv = ["keepfast", *call["arguments"]]
runpy.run_module("keepfast", run_name="__main__", alter_sys=True)
"""

_reported = threading.Lock()
_codes: dict[int, int] = {}
"""Exit codes of those that have ended and have not been asked yet."""


class Process:
    """One that was started here: as much of `subprocess.Popen` as the tests use."""

    def __init__(self, pid: int, arguments: Sequence[str]) -> None:
        self.pid = pid
        self.args = list(arguments)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self._look(0.05)) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, wait_s: float) -> int | None:
        if self.returncode is None:
            with _reported:
                while self.pid not in _codes and _heard(wait_s):
                    pass
                self.returncode = _codes.pop(self.pid, None)
        return self.returncode


def start(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: str, err: str, path: Sequence[str] = ()
) -> Process:
    """`keepfast` with these arguments; it adds to the files `out` and `err`. `path` is searched for modules first."""
    call = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "out": out, "err": err, "path": path}
    server = _server()
    assert server.stdin is not None
    with _reported:
        server.stdin.write(json.dumps(call).encode() + b"\n")
        server.stdin.flush()
        while (heard := _heard(None)) is None or heard[0] != "began":
            pass
    return Process(heard[1], arguments)


def run(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run it to its end. Raises subprocess.TimeoutExpired."""
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        process = start(arguments, cwd=cwd, env=env, out=out.name, err=err.name)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise subprocess.TimeoutExpired(process.args, timeout_s, out.read(), err.read()) from None
        return subprocess.CompletedProcess(process.args, code, out.read(), err.read())


def _heard(wait_s: float | None) -> tuple[str, int] | None:
    """The next thing that the server says, and of which process; None if it says nothing in this time."""
    server = _server()
    assert server.stdout is not None
    if not select([server.stdout], [], [], wait_s)[0]:
        return None
    what, pid, *code = server.stdout.readline().decode().split()
    if code:
        _codes[int(pid)] = int(code[0])
    return what, int(pid)


@cache
def _server() -> subprocess.Popen[bytes]:
    """It ends when its standard input does: with this process."""
    # The keepfast of this process, which may be another one than the checkout's.
    path = [str(Path(keepfast.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    command = [sys.executable, "-P", "-c", SERVER]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environ)
    atexit.register(server.communicate)
    return server
