"""Stops the nodes when their parent has ended in any way.

A tiny shell waits for the end of its standard input, which only the parent holds open: when the parent exits, is killed
or crashes, the kernel closes it. (A parent-death signal would come when the *thread* that started the node ends, and
needs code between fork and exec, which is not safe beside the client's threads.)
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# $1 the cluster's folder, $2 "remove" to delete it afterwards
_SCRIPT = """
trap '' INT TERM HUP
cat > /dev/null
for file in "$1"/node-*/pid; do
    [ -f "$file" ] && kill -9 "$(cat "$file")" 2> /dev/null
done
[ "$2" = remove ] && rm -rf -- "$1"
exit 0
"""


class Watcher:
    """Watches over the nodes in `folder` from `start` until `release`."""

    def __init__(self, folder: Path, *, remove: bool) -> None:
        self._folder = folder
        self._remove = remove
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "sh", str(self._folder), "remove" if self._remove else "keep"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.sep,
            process_group=0,
        )

    def release(self) -> None:
        """Run it now and wait for it: kills running nodes, removes the folder if `remove`."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._process = None
