"""Keeps the shop's consumer running, as `keepfast run --processes 1` does, but restarts it sooner: a child that
crashed is restarted after less than a second, every time.

`python -m keepfast.demo.consumer_supervisor PARENT_FD EVENTS_FD LOG_FILE MODULE:APP`: the logs of both processes go
to the file, their events to the descriptor, as lines of JSON.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from keepfast.supervisor import ChildSpec, ParentLink, RestartPolicy, Supervisor
from keepfast.telemetry import logs
from keepfast.telemetry.event_log import event_line


def main(parent_fd: str, events_fd: str, log_file: str, target: str) -> int:
    ParentLink(int(parent_fd)).watch()
    # A deliberate crash must not leave a core dump on the user's disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The .env and keepfast.toml of the current folder do not apply.
    os.chdir(Path(log_file).parent)
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    logs.configure(level="info", format="json")

    def command(spec: ChildSpec) -> Sequence[str]:
        here = ["--child", str(spec.index), "--parent-fd", str(spec.parent_fd), "--events-fd", events_fd]
        return [sys.executable, "-m", "keepfast", "run", target, "--log-format", "json", "--log-level", "info", *here]

    # The embedded broker admits a member one second before the session of the crashed one ends, and then waits for
    # that one to return: a member that joins within a second of a crash waits twice.
    restart = RestartPolicy(first_delay_s=0.7, max_delay_s=0.7)
    events = int(events_fd)
    return Supervisor(
        command,
        processes=1,
        restart=restart,
        on_child=lambda event: os.write(events, event_line(event)),
        pass_fds=(events,),
    ).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
