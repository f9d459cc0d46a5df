"""From the spool's URL to its store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from keepfast.core.errors import ConfigError
from keepfast.deadletters.spool.disk import PASSING, file_system_of
from keepfast.deadletters.spool.files import FileReader, FileStore
from keepfast.deadletters.spool.memory import MemoryStore
from keepfast.deadletters.spool.objects import ObjectStore
from keepfast.deadletters.spool.postgres import PostgresStore
from keepfast.deadletters.spool.store import Reader, Store

NOT_DURABLE = ("local", "http", "https", "data", "zip", "tar", "simplecache", "filecache", "blockcache")
"""Schemes of fsspec that are read-only, or acknowledge a write before it is durable."""


def store_at(url: str, *, app: str, max_bytes: int) -> Store:
    """The store of this app at this URL; does not access it yet. Raises ConfigError."""
    scheme = scheme_of(url)
    match scheme:
        case "file":
            return FileStore(str(folder_of(url, app)), max_bytes=max_bytes)
        case "memory":
            return MemoryStore(max_bytes=max_bytes)
        case "postgresql" | "postgres":
            return PostgresStore(url, app=app, max_bytes=max_bytes)
        case _ if scheme.split("::", 1)[0] in NOT_DURABLE:
            raise ConfigError(f"A spool cannot be kept at {scheme}://; use file://, postgresql://, s3:// or similar.")
        case _:
            return ObjectStore(url, app=app, max_bytes=max_bytes)


def reader_at(url: str, *, app: str, max_bytes: int) -> Reader:
    """A reader of the store of this app at this URL, also while the app runs. Raises ConfigError."""
    if scheme_of(url) == "file":
        return FileReader(str(folder_of(url, app)))
    return store_at(url, app=app, max_bytes=max_bytes)


def folder_of(url: str, app: str) -> Path:
    """The folder of an app's letters below a file:// URL."""
    return Path(unquote(urlsplit(url).path)) / app


def scheme_of(url: str) -> str:
    return url.partition("://")[0].lower()


def durability_warning(url: str, app: str) -> str:
    """A warning if letters at this URL may not survive a restart; empty if there is none."""
    scheme = scheme_of(url)
    if scheme == "memory":
        return "The spool is in memory: letters in it are lost when the process ends. Use it for tests only."
    if scheme == "file":
        folder = folder_of(url, app)
        while not folder.exists():
            folder = folder.parent
        kind = file_system_of(folder.resolve())
        if kind in PASSING:
            return (
                f"The spool is on {kind}, which does not survive the container: its letters would be lost."
                " Mount a volume there."
            )
    return ""
