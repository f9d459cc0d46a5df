"""The brokers of `keepfast dev` that run now, so that commands in another terminal find them without being told.

Each has a small file in `$XDG_RUNTIME_DIR/keepfast`, or else in the cache folder, and holds a lock on it as long as it
lives. A file without a lock is what a process that was killed has left: whoever finds it removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from keepfast.testing.jars import cache_dir

_SUFFIX: Final = ".dev.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevBroker:
    """A broker that somebody's `keepfast dev` has started."""

    address: str
    app: str
    """As it was named on the command line."""
    folder: str
    """Where `keepfast dev` was started."""

    def is_near(self, folder: Path) -> bool:
        """Whether it belongs to this folder, to one below it, or to one above it."""
        own = Path(self.folder)
        return folder.is_relative_to(own) or own.is_relative_to(folder)

    def __str__(self) -> str:
        return f"{self.address} (`keepfast dev {self.app}` in {self.folder})"


def place() -> Path:
    """The folder of the files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "keepfast" if runtime else cache_dir() / "dev"


@contextmanager
def announced(broker: DevBroker) -> Iterator[None]:
    """Others find it until the block ends, however it ends. Raises OSError where files cannot be written."""
    folder = place()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=folder, prefix="dev-", suffix=".tmp")
    path = Path(name)
    with os.fdopen(handle, "w") as file:
        try:
            # Locked before it has its name: nobody can take it for one that was left.
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(asdict(broker)))
            file.flush()
            path = path.rename(path.with_suffix(_SUFFIX))
            yield
        finally:
            path.unlink(missing_ok=True)


def running() -> list[DevBroker]:
    """All that run now, in no order. Removes what dead ones have left. Never raises."""
    try:
        paths = sorted(place().glob(f"*{_SUFFIX}"))
    except OSError:
        return []
    return [found for path in paths if (found := _read(path)) is not None]


def _read(path: Path) -> DevBroker | None:
    with suppress(OSError, ValueError, TypeError):
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: readers do not disturb each other
            except BlockingIOError:
                return DevBroker(**json.load(file))
        path.unlink()
    return None
