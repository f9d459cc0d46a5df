"""A spool in whatever fsspec reaches, such as S3: one object a letter. Needs the extra `fsspec`."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.core.errors import ConfigError, SpoolError
from holdfast.deadletter.spool import frames
from holdfast.deadletter.spool.letters import Spooled, decode, encode
from holdfast.deadletter.spool.store import Fill, Head, Wanted

SUFFIX = ".letter"
LEASE, LEASE_S, RENEW_S = "drain.lease", 60.0, 20.0
RELIST_S = 15.0
_NAME = re.compile(r"(?P<at_ms>\d{13})-(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<identity>[0-9a-f]{32})\.letter")
_SALT = b"holdfast"
"""The frame is there for its checksum alone: an object holds one letter."""


class ObjectStore:
    """Implements `store.Store`: `<url>/<app>/<when>-<topic>-<identity>.letter`, shared by all processes of an app.

    A name says all that has to be known without reading the letter, and two writers never use the same one for
    different letters. One process sends letters on at a time: whoever has the lease, an object that is made only if it
    is not there (where the service can do that) and counts for a minute. A letter is as safe as the service makes what
    it has acknowledged.
    """

    def __init__(
        self, url: str, *, app: str, max_bytes: int, wall: Callable[[], float] = time.time, options: Any = None
    ) -> None:
        self._url = f"{url.rstrip('/')}/{app}"
        self._max_bytes = max_bytes
        self._wall = wall
        self._options = options or {}
        self._fs: Any = None
        self._folder = ""
        self._token = secrets.token_hex(8)
        self._leads_until = 0.0
        self._listed: dict[str, Head] = {}
        self._listed_at = float("-inf")
        self._identities: dict[bytes, None] = {}

    def open(self) -> None:
        fsspec = _fsspec()
        try:
            self._fs, self._folder = fsspec.core.url_to_fs(self._url, use_listings_cache=False, **self._options)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"The spool's URL cannot be used: {error}") from error
        with self._translated("write to it"):
            self._fs.makedirs(self._folder, exist_ok=True)
            probe = f"{self._folder}/{self._token}.probe"
            self._fs.pipe_file(probe, b"holdfast")
            self._fs.rm_file(probe)
        self._list()

    def add(self, letters: Sequence[Spooled]) -> list[Head]:
        new = {
            one.identity: frames.frame(encode(one), _SALT) for one in letters if one.identity not in self._identities
        }
        held = sum(head.size for head in self._listed.values())
        if held + sum(map(len, new.values())) > self._max_bytes:
            raise SpoolError(
                f"The spool is full: it holds {held:,} of {self._max_bytes:,} bytes."
                " Let Kafka take the letters, or raise spool.max_bytes.",
                full=True,
            )
        heads = []
        for one in letters:
            data = new.pop(one.identity, None)
            if data is None:
                continue
            ref = f"{one.at_ms:013d}-{one.topic}-{one.identity.hex()}{SUFFIX}"
            with self._translated("write to it"):
                self._fs.pipe_file(f"{self._folder}/{ref}", data)
            head = self._listed[ref] = Head(ref, one.topic, one.identity, len(data), one.at_ms)
            self._identities[one.identity] = None
            heads.append(head)
        return heads

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        found: list[Head] = []
        for ref in sorted(self._listed):
            if len(found) >= limit:
                break
            if wanted(self._listed[ref]):
                found.append(self._listed[ref])
        return found

    def read(self, head: Head) -> Spooled:
        with self._translated("read it"):
            data = self._fs.cat_file(f"{self._folder}/{head.ref}")
        payload = frames.payload_at(data, _SALT)
        if payload is None:
            raise SpoolError(f"The spooled letter {head.ref} is damaged: its checksum does not fit.")
        return decode(payload)

    def remove(self, heads: Sequence[Head]) -> None:
        for head in heads:
            with self._translated("remove from it"), suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._folder}/{head.ref}")
            self._listed.pop(head.ref, None)
            self._identities.pop(head.identity, None)

    def lead(self, now: float) -> bool:
        if now - self._listed_at >= RELIST_S:
            self._list()
            self._listed_at = now
        wall = self._wall()
        if not self._listed:
            return False  # nothing to send on: no reason to keep a lease alive
        if wall < self._leads_until - LEASE_S + RENEW_S:
            return True
        with self._translated("ask for its lease"):
            owner, until = self._lease()
            if owner not in ("", self._token) and wall < until:
                self._leads_until = 0.0
                return False
            self._take_lease(wall, renew=owner == self._token)
            owner, until = self._lease()
        self._leads_until = until if owner == self._token else 0.0
        return owner == self._token

    def identities(self) -> Collection[bytes]:
        return self._identities.keys()

    def fill(self) -> Fill:
        heads = list(self._listed.values())
        return Fill(len(heads), sum(head.size for head in heads), min((head.at_ms for head in heads), default=None))

    def close(self) -> None:
        if self._leads_until > self._wall():
            with suppress(SpoolError), self._translated("give back its lease"):  # it ends by itself
                self._fs.rm_file(f"{self._folder}/{LEASE}")
        self._leads_until = 0.0

    def _list(self) -> None:
        found: list[dict[str, Any]] = []
        with self._translated("list it"), suppress(FileNotFoundError):  # a folder with nothing in it is none, on S3
            found = self._fs.ls(self._folder, detail=True)
        listed: dict[str, Head] = {}
        for one in found:
            ref = str(one["name"]).rsplit("/", 1)[-1]
            parts = _NAME.fullmatch(ref)
            if parts is not None:
                identity = bytes.fromhex(parts["identity"])
                listed[ref] = Head(ref, parts["topic"], identity, int(one.get("size") or 0), int(parts["at_ms"]))
        self._listed = listed
        self._identities = {head.identity: None for head in listed.values()}

    def _lease(self) -> tuple[str, float]:
        try:
            told = json.loads(self._fs.cat_file(f"{self._folder}/{LEASE}"))
            return str(told["owner"]), float(told["until"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return "", 0.0

    def _take_lease(self, wall: float, *, renew: bool) -> None:
        path = f"{self._folder}/{LEASE}"
        data = json.dumps({"owner": self._token, "until": wall + LEASE_S}).encode()
        if renew:
            self._fs.pipe_file(path, data)
            return
        with suppress(FileNotFoundError):
            self._fs.rm_file(path)  # it has run out
        try:
            self._fs.pipe_file(path, data, mode="create")
        except FileExistsError:
            return  # another one was first
        except (TypeError, ValueError, NotImplementedError):  # a service that cannot do that
            self._fs.pipe_file(path, data)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except SpoolError:
            raise
        except Exception as error:  # every service behind fsspec has errors of its own
            text = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise SpoolError(f"The spool: could not {what}: {text}") from error


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise ConfigError("A spool at this URL needs the extra `fsspec`: pip install 'holdfast[fsspec]'.") from error
    return fsspec
