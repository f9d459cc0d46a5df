"""Access tokens of the desk: each has a name and a role. Only their hashes are stored."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from keepfast.core.errors import ConfigError

Role = Literal["viewer", "replayer", "admin"]
Right = Literal["read", "replay", "mark", "note", "reveal", "try", "archive", "purge", "export", "control"]

_VIEWER: Final = frozenset[Right]({"read"})
_REPLAYER: Final = _VIEWER | frozenset[Right]({"replay", "mark", "note"})
_ADMIN: Final = _REPLAYER | frozenset[Right]({"reveal", "try", "archive", "purge", "export", "control"})
RIGHTS: Final[dict[Role, frozenset[Right]]] = {"viewer": _VIEWER, "replayer": _REPLAYER, "admin": _ADMIN}

PREFIX: Final = "kfd_"
MAX_TOKEN: Final = 200
_NAME = re.compile(r"[\w.@+-]{1,64}")


@dataclass(frozen=True, slots=True)
class DeskUser:
    """Who makes a request. The name is what the audit records."""

    name: str
    role: Role

    def may(self, right: Right) -> bool:
        return right in RIGHTS[self.role]


class StoredToken(msgspec.Struct, frozen=True):
    name: str
    role: Role
    sha256: str
    created_at: str = ""


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[StoredToken, ...] = ()


class TokenFile:
    """Tokens in a file that only its owner can read. Methods raise ConfigError if the file cannot be read or written.

    A token is 32 random bytes, so a plain SHA-256 of it cannot be reversed by trying.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def tokens(self) -> tuple[StoredToken, ...]:
        """Empty if there is no file."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_File).tokens
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(
                f"The tokens in {self.path} cannot be read ({error}): correct or delete the file."
            ) from error

    def add(self, name: str, role: Role) -> str:
        """A new token, which is returned and not stored. A name has one token."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a name for a token: use letters, digits and . _ @ + -, 64 at most.")
        known = self.tokens()
        if any(one.name == name for one in known):
            raise ConfigError(f"There is a token for {name} already: remove it first, or choose another name.")
        token = new_token()
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._write([*known, StoredToken(name, role, digest(token), at)])
        return token

    def remove(self, name: str) -> bool:
        """Whether there was one."""
        known = self.tokens()
        left = [one for one in known if one.name != name]
        if len(left) == len(known):
            return False
        self._write(left)
        return True

    def _write(self, tokens: Iterable[StoredToken]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_File(tuple(tokens))), indent=2) + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".tokens-")  # readable by its owner only
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).replace(self.path)
        except OSError as error:
            raise ConfigError(f"The tokens cannot be written to {self.path}: {error.strerror}.") from error


class Tokens:
    """Finds the identity of a token. Reads the file when it has changed, so a removed token ends at once.

    `session`: a token for this process only, of the role admin; its name is that of the user who started the desk.
    """

    def __init__(self, file: TokenFile | None, *, session: tuple[str, str] | None = None) -> None:
        self._file = file
        self._stamp: tuple[int, int] | None = None
        self._stored: tuple[StoredToken, ...] = ()
        self._session = (StoredToken(session[0], "admin", digest(session[1])),) if session else ()

    def identity(self, token: str) -> DeskUser | None:
        if not token or len(token) > MAX_TOKEN:
            return None
        given = digest(token)
        found = None
        for one in self.known():  # all of them are compared: the time does not depend on which one matches
            if hmac.compare_digest(one.sha256.encode(), given.encode()):
                found = DeskUser(one.name, one.role)
        return found

    def still_valid(self, sha256: str) -> DeskUser | None:
        """The identity of a token by its hash: for sessions, which hold no token."""
        return next((DeskUser(one.name, one.role) for one in self.known() if one.sha256 == sha256), None)

    def known(self) -> tuple[StoredToken, ...]:
        if self._file is not None:
            stamp = _stamp(self._file.path)
            if stamp != self._stamp:
                self._stored, self._stamp = self._file.tokens(), stamp
        return self._session + self._stored


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def default_path() -> Path:
    """In the user's configuration directory."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "keepfast" / "desk-tokens.json"


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
