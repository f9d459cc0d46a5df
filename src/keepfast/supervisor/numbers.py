"""Numbers for several supervisors of one app on one host, so that their children do not get the same names."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

from keepfast.engine.flight_recorder import StateDirectory

MAX_SUPERVISORS: Final = 64


class SupervisorNumber:
    """The lowest number that no other supervisor of this app has, in the state directory: a locked file, which the
    kernel unlocks however this process ends. So the first one has 0, and one that is restarted has the same as before.

    An app is known by the folder, the target and the chosen consumers of the command line, because the supervisor does
    not load it. Where the state directory cannot be used, the number is 0.
    """

    def __init__(self, target: str, consumers: Sequence[str], *, state_dir: str | None, cwd: Path) -> None:
        what = "\0".join([str(cwd), target, *sorted(consumers)])
        self._name = blake2b(what.encode(), digest_size=8).hexdigest()
        self._state_dir = state_dir
        self._fd: int | None = None

    def acquire(self) -> int:
        try:
            folder = StateDirectory.open(self._state_dir).path
            for number in range(MAX_SUPERVISORS):
                if self._lock(folder / f"{self._name}-{number}.supervisor"):
                    return number
        except OSError:
            return 0
        return 0

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _lock(self, path: Path) -> bool:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        return True
