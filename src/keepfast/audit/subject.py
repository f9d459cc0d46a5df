"""The subject of an audit: an app, its effective settings, and the files of its project."""

from __future__ import annotations

import inspect
import re
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from keepfast.app import App
from keepfast.app.inboxes import AppInboxes, in_transaction
from keepfast.app.options import Consumer
from keepfast.classify.classification import RuleBook
from keepfast.engine.middleware import LATER
from keepfast.redact.sensitive import CardNumbers
from keepfast.runner import KafkaConsumerRunner
from keepfast.settings import ConsumerSettings, Settings

MAX_FILE_BYTES = 1_000_000
"""The largest file that is read."""
_MARKS = ("pyproject.toml", "README.md", "README.rst", "README.txt", "README", "Dockerfile")
RECORDS = ("docs/decisions", "docs/adr", "decisions", "adr")
"""Folders of a project's decision records."""
_OVERRULES = re.compile(r"(?im)^[*_ ]*overrules[*_ ]*:[*_ ]*(?P<rules>.+)$")


InboxUse = Literal["none", "beside", "around"]


@dataclass(frozen=True, slots=True)
class AuditedConsumer:
    """One consumer: its settings, the type that its handler takes, and its card detector."""

    own: ConsumerSettings
    takes: Any
    sensitive: CardNumbers | None
    env: str
    inbox: InboxUse = "none"
    """Whether processed records are noted, and in the transaction of what the handler does, or beside it."""
    hooks: frozenset[str] = frozenset()
    """For a runner: the names of the hooks that replace parts of keepfast."""

    @property
    def book(self) -> RuleBook:
        return RuleBook(self.own.rules)


def _inbox_of(consumer: Consumer, settings: Settings) -> InboxUse:
    stage = AppInboxes(settings).of(consumer, settings.consumers[consumer.name].group, LATER)
    if stage is None:
        return "none"
    return "around" if in_transaction(consumer, stage) else "beside"


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision record of the app that overrules rules: `docs/decisions/0004-no-timeouts.md`."""

    path: str

    @property
    def number(self) -> int | None:
        """The number at the start of its file name, or None."""
        digits = re.match(r"\d+", self.path.rpartition("/")[2])
        return int(digits[0]) if digits else None


class Subject:
    """An app or a runner to be audited. Reads the files of `folder` on demand; connects to no broker."""

    def __init__(self, consumers: list[AuditedConsumer], settings: Settings, folder: Path | None) -> None:
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
        """`folder` None: found from the location of the code. Raises ConfigError with all problems of the settings."""
        settings = app.settings(environ=environ, cwd=cwd)
        if isinstance(app, KafkaConsumerRunner):
            folder = folder or project_of([app.blueprint.process_message], cwd)
            return cls([_consumer_of_runner(app, settings)], settings, folder)
        consumers = [
            AuditedConsumer(
                settings.consumers[one.name],
                one.shape.annotation,
                one.sensitive,
                settings.app.env,
                inbox=_inbox_of(one, settings),
            )
            for one in app.consumers.values()
        ]
        return cls(consumers, settings, folder or project_of([one.function for one in app.consumers.values()], cwd))

    @property
    def serves_itself(self) -> bool:
        """Whether the user's own health server replaces keepfast's."""
        return any("health_server_start" in one.hooks for one in self.consumers)

    @cached_property
    def readme(self) -> str | None:
        """The text of the README, or None."""
        return next((text for name in _MARKS if name.startswith("README") and (text := self.file(name))), None)

    @cached_property
    def dockerfile(self) -> list[str] | None:
        """The instructions of the Dockerfile, one per line, or None."""
        text = self.file("Dockerfile")
        if text is None:
            return None
        without_comments = re.sub(r"(?m)^\s*#.*\n?", "", text)
        return [line.strip() for line in re.sub(r"\\\s*\n\s*", " ", without_comments).splitlines() if line.strip()]

    @cached_property
    def overruled(self) -> dict[str, DecisionRecord]:
        """The rules that decision records overrule with a line `Overrules: standard:9.3.3, loop:4`."""
        found: dict[str, DecisionRecord] = {}
        for name in self._records():
            for line in _OVERRULES.finditer(self.file(name) or ""):
                found |= dict.fromkeys(re.findall(r"[a-z][a-z-]*:[\w.]*\w", line["rules"]), DecisionRecord(name))
        return found

    def _records(self) -> list[str]:
        if self.folder is None:
            return []
        return [f"{place}/{path.name}" for place in RECORDS for path in sorted((self.folder / place).glob("*.md"))]

    def file(self, name: str) -> str | None:
        path = None if self.folder is None else self.folder / name
        if path is None or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")

    def has(self, pattern: str) -> bool:
        return self.folder is not None and next(self.folder.glob(pattern), None) is not None


def _consumer_of_runner(runner: KafkaConsumerRunner, settings: Settings) -> AuditedConsumer:
    """The consumer of a runner. `message_factory` validates messages; without it they are unvalidated dicts."""
    takes = object if "message_factory" in runner.hooks else dict
    return AuditedConsumer(settings.consumers[runner.blueprint.name], takes, None, settings.app.env, hooks=runner.hooks)


def project_of(functions: Iterable[object], cwd: Path) -> Path | None:
    """The nearest parent folder of the code that looks like a project, or the folder of the code itself.

    None for installed code. Does not search above a repository or the user's home.
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
    """The code of a function or of a callable object."""
    plain = inspect.unwrap(function)
    called = plain if hasattr(plain, "__code__") else inspect.getattr_static(type(plain), "__call__", None)
    return getattr(called, "__code__", None)
