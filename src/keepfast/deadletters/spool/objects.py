"""A spool in a store supported by fsspec, such as S3: one object per letter. Needs the extra `fsspec`."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from keepfast.core.errors import ConfigError, SpoolError
from keepfast.deadletters.spool import frames
from keepfast.deadletters.spool.letters import SpooledLetter, decode, encode
from keepfast.deadletters.spool.store import Fill, Head, Wanted
from keepfast.redact.urls import conceal

SUFFIX, PARTIAL = ".letter", ".partial"
LEASE, LEASE_S, RENEW_S = "drain.lease", 60.0, 20.0
RELIST_S = 15.0
PARTIAL_MS = 3_600_000
"""A temporary object of this age is removed: its writer is considered dead."""
RENAMES = frozenset({"local", "file", "sftp", "ssh", "smb", "ftp", "hdfs", "arrow_hdfs"})
"""Schemes of fsspec where a write is not atomic and a rename is. On all others a letter is read back once written."""
_NAME = re.compile(
    r"(?P<at_ms>\d{13})-(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<identity>[0-9a-f]{32})(-[0-9a-f]{16})?\.letter"
)
_SALT = b"keepfast"
"""The frame only adds a checksum: an object holds one letter."""


class ObjectStore:
    """Implements `store.Store`: objects `<url>/<app>/<when>-<topic>-<identity>-<writer>.letter`, shared by all
    processes of an app.

    A name contains all metadata of the letter, and is unique to its writer. One process sends letters at a time: the
    holder of the lease, an object that is created only if it does not exist (where the service supports that) and is
    valid for a minute. A letter is as durable as an acknowledged write of the service.

    A failed upload may leave a partial object. So the name alone is not trusted: a letter is stored only if this
    process has written it completely (renamed, or read back) or has read it with a valid checksum.
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
        self._whole: set[str] = set()  # written completely by this process, or read with a valid checksum
        self._identities: dict[bytes, int] = {}  # how many of those
        self._torn: set[str] = set()  # to be removed
        self._renames = False

    def open(self) -> None:
        fsspec = _fsspec()
        try:
            self._fs, self._folder = fsspec.core.url_to_fs(self._url, use_listings_cache=False, **self._options)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"The spool's URL cannot be used: {conceal(str(error), self._url)}") from None
        except Exception as error:  # noqa: BLE001 - such as a server of FTP that does not answer: it is connected to here
            raise self._failure("be reached", error) from None
        protocol = self._fs.protocol
        self._renames = not RENAMES.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)
        with self._translated("write to it"):
            self._fs.makedirs(self._folder, exist_ok=True)
            self._probe(b"keepfast")
        self._list()

    def add(self, letters: Sequence[SpooledLetter]) -> list[Head]:
        letters = [one for one in letters if one.identity not in self._identities and not self._finds(one.identity)]
        new = {one.identity: (one, frames.frame(encode(one), _SALT)) for one in letters}
        self._check_room(sum(len(data) for _, data in new.values()))
        heads = []
        for one, data in new.values():
            ref = f"{one.at_ms:013d}-{one.topic}-{one.identity.hex()}-{self._token}{SUFFIX}"
            with self._translated("write to it"):
                self._write(ref, data)
            self._torn.discard(ref)  # the same name as a try that failed in the same millisecond
            head = self._listed[ref] = Head(ref, one.topic, one.identity, len(data), one.at_ms)
            self._trust(head)
            heads.append(head)
        return heads

    def try_room(self, size: int) -> None:
        self._check_room(size)
        with self._translated("write to it"):
            self._probe(bytes(size))

    def heads(self, limit: int, wanted: Wanted) -> list[Head]:
        found: list[Head] = []
        for ref in sorted(self._listed):
            if len(found) >= limit:
                break
            if wanted(self._listed[ref]):
                found.append(self._listed[ref])
        return found

    def read(self, head: Head) -> SpooledLetter:
        with self._translated("read it"):
            data = self._fs.cat_file(f"{self._folder}/{head.ref}")
        payload = frames.payload_at(data, _SALT)
        if payload is None:
            raise SpoolError(f"The spooled letter {head.ref} is damaged: its checksum does not match.", damaged=True)
        letter = decode(payload)
        if head.ref in self._listed and letter.identity == head.identity:
            self._trust(head)
        return letter

    def remove(self, heads: Sequence[Head]) -> None:
        for head in heads:
            with self._translated("remove from it"), suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._folder}/{head.ref}")
            self._forget(head)

    def lead(self, now: float) -> bool:
        if now - self._listed_at >= RELIST_S:
            self._list()
            self._listed_at = now
        wall = self._wall()
        if not self._listed:
            return False  # nothing to send: the lease is not needed
        if wall < self._leads_until - LEASE_S + RENEW_S:
            return True
        with self._translated("acquire its lease"):
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
            with suppress(SpoolError), self._translated("release its lease"):  # it expires
                self._fs.rm_file(f"{self._folder}/{LEASE}")
        self._leads_until = 0.0

    def _check_room(self, size: int) -> None:
        held = sum(head.size for head in self._listed.values())
        if held + size > self._max_bytes:
            raise SpoolError(
                f"The spool is full: it holds {held:,} of {self._max_bytes:,} bytes."
                " Restore Kafka so that the letters are sent, or raise spool.max_bytes.",
                full=True,
            )

    def _probe(self, data: bytes) -> None:
        path = f"{self._folder}/{self._token}.probe"
        self._fs.pipe_file(path, data)
        self._fs.rm_file(path)

    def _list(self) -> None:
        found: list[dict[str, Any]] = []
        with self._translated("list it"), suppress(FileNotFoundError):  # an empty folder does not exist on S3
            found = self._fs.ls(self._folder, detail=True)
        listed: dict[str, Head] = {}
        for one in found:
            ref = str(one["name"]).rsplit("/", 1)[-1]
            parts = _NAME.fullmatch(ref)
            if ref in self._torn:
                self._discard(ref)
            elif parts is not None:
                identity = bytes.fromhex(parts["identity"])
                listed[ref] = Head(ref, parts["topic"], identity, int(one.get("size") or 0), int(parts["at_ms"]))
            elif ref.endswith(PARTIAL):
                self._clear_partial(ref)
        self._listed = listed
        self._whole &= listed.keys()
        self._identities = Counter(listed[ref].identity for ref in self._whole)

    def _clear_partial(self, ref: str) -> None:
        """Remove partial objects of processes that crashed while writing."""
        at_ms = ref[:13]
        if at_ms.isdecimal() and int(at_ms) + PARTIAL_MS < self._wall() * 1000:
            self._discard(ref)

    def _trust(self, head: Head) -> None:
        if head.ref not in self._whole:
            self._whole.add(head.ref)
            self._identities[head.identity] = self._identities.get(head.identity, 0) + 1

    def _forget(self, head: Head) -> None:
        self._listed.pop(head.ref, None)
        if head.ref in self._whole:
            self._whole.remove(head.ref)
            self._identities[head.identity] -= 1
            if not self._identities[head.identity]:
                del self._identities[head.identity]

    def _finds(self, identity: bytes) -> bool:
        """Whether an object of another writer is complete. It is read; a damaged one is removed, because its letter
        is about to be written.
        """
        for head in [one for one in self._listed.values() if one.identity == identity]:
            with self._translated("read it"):
                try:
                    data = self._fs.cat_file(f"{self._folder}/{head.ref}")
                except FileNotFoundError:
                    self._forget(head)
                    continue
            if frames.payload_at(data, _SALT) is not None:
                self._trust(head)
                return True
            self._discard(head.ref)
            self._forget(head)
        return False

    def _write(self, ref: str, data: bytes) -> None:
        """Returns when the object is complete. Raises the service's errors; then the name is not trusted."""
        path = f"{self._folder}/{ref}"
        if self._renames:
            partial = f"{ref}{PARTIAL}"
            try:
                self._fs.pipe_file(f"{self._folder}/{partial}", data)
                self._fs.mv(f"{self._folder}/{partial}", path)
            except Exception:
                self._discard(partial)
                raise
            return
        try:
            self._fs.pipe_file(path, data)
            if self._fs.cat_file(path) != data:
                raise SpoolError(f"The spool: could not write to it: {ref} reads back differently.")
        except Exception:
            self._discard(ref)
            raise

    def _discard(self, ref: str) -> None:
        """Remove a partial letter, now or when the store is listed again."""
        self._torn.add(ref)
        with suppress(Exception):  # each service of fsspec has its own errors; the name is not trusted anyway
            with suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._folder}/{ref}")
            self._torn.remove(ref)

    def _lease(self) -> tuple[str, float]:
        try:
            lease = json.loads(self._fs.cat_file(f"{self._folder}/{LEASE}"))
            return str(lease["owner"]), float(lease["until"])
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
        except Exception as error:  # noqa: BLE001 - every service behind fsspec has errors of its own
            raise self._failure(what, error) from None

    def _failure(self, what: str, error: Exception) -> SpoolError:
        """Without the credentials of the URL, and not chained: what the service says may quote them."""
        text = conceal(f"{type(error).__name__}: {error}".partition("\n")[0], self._url)
        return SpoolError(f"The spool: could not {what}: {text}")


def _fsspec() -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise ConfigError("A spool at this URL needs fsspec: pip install fsspec.") from error
    return fsspec
