"""A registry of the running brokers of `keepfast dev`, through which commands in another terminal find them.

Each broker has a small file in `$XDG_RUNTIME_DIR/keepfast`, or else in the cache directory, and holds a lock on it
while it runs. A file without a lock belongs to a process that was killed; the next reader removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from keepfast.testing.jars import cache_dir

_SUFFIX: Final = ".dev.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevBroker:
    """A broker that a `keepfast dev` has started."""

    address: str
    app: str
    """As written on the command line."""
    folder: str
    """The working directory of `keepfast dev`."""
    health_port: int = 0
    """Of the app, on this host; 0 if it has none."""
    token: str = field(default="", repr=False)
    """Of the control API of the app. The file can be read by its owner only."""

    def is_near(self, folder: Path) -> bool:
        """Whether it runs in this folder, below it or above it."""
        own = Path(self.folder)
        return folder.is_relative_to(own) or own.is_relative_to(folder)

    def __str__(self) -> str:
        return f"{self.address} (`keepfast dev {self.app}` in {self.folder})"


def directory() -> Path:
    """The directory that holds the registry files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "keepfast" if runtime else cache_dir() / "dev"


@contextmanager
def register(broker: DevBroker) -> Iterator[None]:
    """Keep the broker registered until the block ends. Raises OSError if the file cannot be written."""
    folder = directory()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=folder, prefix="dev-", suffix=".tmp")
    path = Path(name)
    with os.fdopen(handle, "w") as file:
        try:
            # Locked before it gets its final name, so that no reader takes it for a stale file.
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(asdict(broker)))
            file.flush()
            path = path.rename(path.with_suffix(_SUFFIX))
            yield
        finally:
            path.unlink(missing_ok=True)


def running() -> list[DevBroker]:
    """All running brokers, in no particular order. Removes stale files. Never raises."""
    try:
        paths = sorted(directory().glob(f"*{_SUFFIX}"))
    except OSError:
        return []
    return [found for path in paths if (found := _read(path)) is not None]


def _read(path: Path) -> DevBroker | None:
    with suppress(OSError, ValueError, TypeError):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: readers do not block each other
            except BlockingIOError:
                return DevBroker(**json.load(file))
        path.unlink()
    return None
