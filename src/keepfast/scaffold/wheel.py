"""The keepfast wheel that a new project installs: one that the user names, or one built from the installed package.

A project must never install keepfast from a package index, where the name may belong to another project.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from keepfast import __version__
from keepfast.core.errors import ConfigError

_NAME: Final = "keepfast"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""A fixed time for all entries, so that the same content gives the same bytes."""
_DIST_INFO: Final = f"{_NAME}-{__version__}.dist-info"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel file: its name and its bytes."""

    name: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def wheel_at(path: Path) -> Wheel:
    """Read a wheel. Raises ConfigError if the file is not a keepfast wheel."""
    parts = path.name.split("-")
    if path.suffix != ".whl" or parts[0] != _NAME or len(parts) < 5:
        raise ConfigError(f"--wheel {path} is not a wheel of {_NAME}: its name must be {_NAME}-VERSION-….whl.")
    try:
        content = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            known = any(name.endswith(".dist-info/METADATA") for name in packed.namelist())
    except OSError as error:
        raise ConfigError(f"--wheel {path} cannot be read: {error.strerror}.") from error
    except zipfile.BadZipFile as error:
        raise ConfigError(f"--wheel {path} is damaged: {error}.") from error
    if not known:
        raise ConfigError(f"--wheel {path} is not a wheel: it has no METADATA.")
    return Wheel(path.name, content)


def installed_wheel() -> Wheel:
    """Build a wheel of the running package, installed or in a checkout. Raises ConfigError if it has no metadata."""
    packed, record = io.BytesIO(), list[str]()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in (*_package(files(_NAME), _NAME), *_metadata()):
            target.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
        name = f"{_DIST_INFO}/RECORD"
        target.writestr(zipfile.ZipInfo(name, _EPOCH), "".join(record) + f"{name},,\n", zipfile.ZIP_DEFLATED)
    return Wheel(f"{_NAME}-{__version__}-py3-none-any.whl", packed.getvalue())


def _package(folder: Traversable, at: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file():
            yield f"{at}/{entry.name}", entry.read_bytes()
        elif entry.name != "__pycache__":
            yield from _package(entry, f"{at}/{entry.name}")


def _metadata() -> Iterator[tuple[str, bytes]]:
    try:
        installed = distribution(_NAME)
    except PackageNotFoundError as error:
        raise ConfigError(
            f"{_NAME} is not installed, so no wheel of it can be built. Install it, or name a wheel with --wheel."
        ) from error
    for name in ("METADATA", "WHEEL", "entry_points.txt"):
        text = installed.read_text(name)
        if text is not None:
            yield f"{_DIST_INFO}/{name}", text.encode()
