"""The files of a new project: rendered from templates and written all or none."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Final

from keepfast.core.errors import ConfigError
from keepfast.scaffold.naming import FUNCTION, ProjectNames
from keepfast.scaffold.wheel import Wheel, installed_wheel

KAFKA_VERSION: Final = "4.3.1"
SUFFIX: Final = ".tmpl"
"""Marks templates, so that tools do not treat them as our code."""
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_PATH = re.compile(r"__(package|project)__")
"""A placeholder in the name of a file or folder."""


@dataclass(frozen=True, slots=True)
class Project:
    """A project that is not written yet. `files`: path → text."""

    names: ProjectNames
    files: Mapping[PurePosixPath, str]
    wheel: Wheel
    """keepfast itself, in `wheels/`."""

    @property
    def paths(self) -> list[PurePosixPath]:
        return sorted([*self.files, self.wheel_path])

    @property
    def wheel_path(self) -> PurePosixPath:
        return PurePosixPath("wheels") / self.wheel.name

    def write(self, folder: Path) -> None:
        """Write all files, or none. Raises ConfigError if the folder is not empty or cannot be written."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(
                f"{folder} exists and is not an empty folder; nothing was written. Choose another name, or --into a"
                " folder that does not exist."
            )
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        except OSError as error:
            raise ConfigError(
                f"{folder} cannot be created: {error.strerror}. Choose another one with --into."
            ) from error
        try:
            for path, text in self.files.items():
                target = draft / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            wheel = draft / self.wheel_path
            wheel.parent.mkdir(exist_ok=True)
            wheel.write_bytes(self.wheel.content)
            draft.chmod(0o777 & ~_umask())  # a temporary folder is private to its owner
            draft.rename(folder)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror}; nothing was written.") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def render(names: ProjectNames, wheel: Wheel | None = None) -> Project:
    """Render the project. It installs this keepfast wheel; None: a wheel of the running package."""
    wheel = wheel or installed_wheel()
    values = {
        "project": names.project,
        "package": names.package,
        "app": names.project,
        "dns": names.project.replace("_", "-"),
        "topic": names.topic,
        "group": names.group,
        "dead_letter_topic": names.dead_letter_topic,
        "function": FUNCTION,
        "wheel": wheel.name,
        "wheel_sha256": wheel.sha256,
        "kafka": KAFKA_VERSION,
    }
    found = {
        PurePosixPath(_PATH.sub(lambda part: values[part[1]], str(path))): _filled(text, values)
        for path, text in _templates(files("keepfast.scaffold") / "template", PurePosixPath())
    }
    return Project(names, dict(sorted(found.items())), wheel)


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _templates(folder: Traversable, at: PurePosixPath) -> Iterator[tuple[PurePosixPath, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _templates(entry, at / entry.name)
        elif entry.name.endswith(SUFFIX):
            yield at / entry.name.removesuffix(SUFFIX), entry.read_text(encoding="utf-8")


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
