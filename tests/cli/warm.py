"""`holdfast` in a process that has imported everything already.

To import is most of what a short command takes, and the tests call hundreds of them: one process imports once and then
forks itself for every call. The fork is a process of its own, with its own environment, folder and end.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from select import select

SERVER = """
import importlib, json, os, pkgutil, runpy, sys

import holdfast.cli

for found in pkgutil.iter_modules(holdfast.cli.__path__):
    importlib.import_module(f"holdfast.cli.{found.name}")
import holdfast.app.assembly

for line in sys.stdin:
    call = json.loads(line)
    pid = os.fork()
    if pid == 0:
        break
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()

for fd, path in enumerate((os.devnull, call["out"], call["err"])):
    os.dup2(os.open(path, os.O_RDWR), fd)
os.chdir(call["cwd"])
os.environ.clear()
os.environ.update(call["env"])
sys.argv = ["holdfast", *call["arguments"]]
runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
"""


def run(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run it to its end. Raises subprocess.TimeoutExpired."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        call = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "out": out.name, "err": err.name}
        server.stdin.write(json.dumps(call).encode() + b"\n")
        server.stdin.flush()
        pid = int(server.stdout.readline())
        in_time, *_ = select([server.stdout], [], [], timeout_s)
        if not in_time:
            os.kill(pid, signal.SIGKILL)
        code = int(server.stdout.readline())
        if not in_time:
            raise subprocess.TimeoutExpired(list(arguments), timeout_s, out.read(), err.read())
        return subprocess.CompletedProcess(list(arguments), code, out.read(), err.read())


@cache
def _server() -> subprocess.Popen[bytes]:
    """It ends when its standard input does: with this process."""
    command = [sys.executable, "-P", "-c", SERVER]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    atexit.register(server.communicate)
    return server
