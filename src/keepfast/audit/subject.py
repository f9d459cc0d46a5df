"""What is looked at: an app, the settings that hold for it here, and the files of its project."""

from __future__ import annotations

import inspect
import re
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any

from keepfast.app import App
from keepfast.classify.classification import RuleBook
from keepfast.redact.sensitive import CardNumbers
from keepfast.runner import KafkaConsumerRunner
from keepfast.settings import ConsumerSettings, Settings

MOST_BYTES = 1_000_000
"""Of a README or a Dockerfile; nobody writes longer ones."""
_MARKS = ("pyproject.toml", "README.md", "README.rst", "README.txt", "README", "Dockerfile")
RECORDS = ("docs/decisions", "docs/adr", "decisions", "adr")
"""Where a project keeps the records of its decisions."""
_OVERRULES = re.compile(r"(?im)^[*_ ]*overrules[*_ ]*:[*_ ]*(?P<rules>.+)$")


@dataclass(frozen=True, slots=True)
class Asked:
    """One consumer: its settings, what its handler takes, and what may not be in its records."""

    own: ConsumerSettings
    takes: Any
    sensitive: CardNumbers | None
    env: str
    hooks: frozenset[str] = frozenset()
    """Of a runner: what functions of the user's own do in place of keepfast, by the names of the hooks."""

    @property
    def book(self) -> RuleBook:
        return RuleBook(self.own.rules)


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision of the app's own that overrules rules: `docs/decisions/0004-no-timeouts.md`."""

    path: str

    @property
    def number(self) -> int | None:
        """None: its name does not begin with one."""
        digits = re.match(r"\d+", self.path.rpartition("/")[2])
        return int(digits[0]) if digits else None


class Subject:
    """An app, or a runner, to be examined. Reads files of `folder` when they are asked for; asks no broker."""

    def __init__(self, consumers: list[Asked], settings: Settings, folder: Path | None) -> None:
        self.consumers = consumers
        self.settings = settings
        self.folder = folder

    @classmethod
    def of(
        cls,
        app: App | KafkaConsumerRunner,
        *,
        cwd: Path,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Subject:
        """`folder` None: found by the place of the code. Raises ConfigError with every problem of the settings."""
        settings = app.settings(environ=environ, cwd=cwd)
        if isinstance(app, KafkaConsumerRunner):
            return cls([_asked_of(app, settings)], settings, folder or project_of([app.blueprint.process_message], cwd))
        consumers = [
            Asked(settings.consumers[one.name], one.shape.annotation, one.sensitive, settings.app.env)
            for one in app.consumers.values()
        ]
        return cls(consumers, settings, folder or project_of([one.function for one in app.consumers.values()], cwd))

    @property
    def serves_itself(self) -> bool:
        """A health server of the user's own stands in for keepfast's."""
        return any("health_server_start" in one.hooks for one in self.consumers)

    @cached_property
    def readme(self) -> str | None:
        """None: there is none."""
        return next((text for name in _MARKS if name.startswith("README") and (text := self.file(name))), None)

    @cached_property
    def dockerfile(self) -> list[str] | None:
        """Its instructions, one a line; None: there is none."""
        text = self.file("Dockerfile")
        if text is None:
            return None
        without_comments = re.sub(r"(?m)^\s*#.*\n?", "", text)
        return [line.strip() for line in re.sub(r"\\\s*\n\s*", " ", without_comments).splitlines() if line.strip()]

    @cached_property
    def overruled(self) -> dict[str, DecisionRecord]:
        """Rules that a record in the project overrules by a line of its own, `Overrules: standard:9.3.3, loop:4`."""
        found: dict[str, DecisionRecord] = {}
        for name in self._records():
            for said in _OVERRULES.finditer(self.file(name) or ""):
                found |= dict.fromkeys(re.findall(r"[a-z]+:[\w.]*\w", said["rules"]), DecisionRecord(name))
        return found

    def _records(self) -> list[str]:
        if self.folder is None:
            return []
        return [f"{place}/{path.name}" for place in RECORDS for path in sorted((self.folder / place).glob("*.md"))]

    def file(self, name: str) -> str | None:
        path = None if self.folder is None else self.folder / name
        if path is None or not path.is_file() or path.stat().st_size > MOST_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")

    def has(self, pattern: str) -> bool:
        return self.folder is not None and next(self.folder.glob(pattern), None) is not None


def _asked_of(runner: KafkaConsumerRunner, settings: Settings) -> Asked:
    """What comes out of `message_factory` was checked by it; without one, anything may come."""
    takes = object if "message_factory" in runner.hooks else dict
    return Asked(settings.consumers[runner.blueprint.name], takes, None, settings.app.env, runner.hooks)


def project_of(functions: Iterable[object], cwd: Path) -> Path | None:
    """The nearest folder around the code that looks like a project, or that of the code itself; None for code that is
    installed. Not searched beyond a repository or the user's home.
    """
    for function in functions:
        code = _code_of(function)
        if code is None:
            continue
        file = (cwd / code.co_filename).resolve()
        if file.is_relative_to(Path(sysconfig.get_path("purelib")).resolve()):
            return None
        return _around(file)
    return None


def _around(file: Path) -> Path:
    for folder in file.parents:
        if folder == Path.home():
            break
        if any((folder / mark).is_file() for mark in _MARKS):
            return folder
        if (folder / ".git").exists():
            break
    return file.parent


def _code_of(function: Any) -> CodeType | None:
    """Of a function, or of an object that is called like one."""
    plain = inspect.unwrap(function)
    called = plain if hasattr(plain, "__code__") else inspect.getattr_static(type(plain), "__call__", None)
    return getattr(called, "__code__", None)
