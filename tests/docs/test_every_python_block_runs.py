"""Every Python block of README and docs is typed, loads, and, where it has handlers, processes a record in memory."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast import App
from keepfast.testing.harness import Harness, harness
from tests.docs.blocks import LOSES, ROOT, Unit, of, units

STAGE = Path(__file__).parent / "stage"
EXAMPLE = {
    "id": "a1", "amount": 12, "customer": "c7", "code": "17", "name": "First Bank", "type": "login", "user": "ada",
}  # fmt: skip
"""Fits the models of all examples."""


@pytest.fixture(autouse=True)
def _on_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(STAGE))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"shop", "example"}:
            del sys.modules[name]


@pytest.mark.parametrize("unit", units(), ids=lambda unit: unit.name)
def test_it_does_what_its_page_says(unit: Unit) -> None:
    module = types.ModuleType("example")
    sys.modules["example"] = module
    exec(compile(unit.text, unit.name.partition(":")[0], "exec", dont_inherit=True), vars(module))
    for app in [thing for thing in vars(module).values() if isinstance(thing, App)]:
        asyncio.run(_processed(app, unit.word))
    for name, test in list(vars(module).items()):
        if name.startswith("test_") and callable(test):
            assert not inspect.iscoroutinefunction(test), "plain pytest, as readers have it, does not run async tests"
            test()


async def _processed(app: App, word: str) -> None:
    topics = sorted({topic for one in app.settings(environ={}).consumers.values() for topic in one.topics})
    async with harness(app) as h:
        for topic in topics:
            await h.send(topic, EXAMPLE, key="a1", headers={"type": "login"}, settle=False)
        await h.settle()
    kind, _, code = word.partition(" ")
    assert _what_became_of_it(h) == ({(kind or "processed", code)} if topics else set())


def _what_became_of_it(h: Harness) -> set[tuple[str, str]]:
    dead: set[tuple[str, str]] = {("dead-lettered", letter.error_code) for letter in h.dead}
    return dead | {("processed", "") for _ in h.processed} | {("discarded", "") for _ in h.discarded}


def test_all_of_it_is_typed(tmp_path: Path) -> None:
    """By the project's own configuration, whose cache is warm after `make check`."""
    files = []
    for number, unit in enumerate(units()):
        files.append(tmp_path / f"block_{number}.py")
        files[-1].write_text(unit.text)
    places = {str(path): unit.name.partition(":")[0] for path, unit in zip(files, units(), strict=True)}
    environ = {**os.environ, "MYPYPATH": f"{STAGE}:{os.environ.get('MYPYPATH', '')}".rstrip(":")}
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    for path, page in places.items():
        printed = printed.replace(path, page)
    assert done.returncode == 0, printed


def test_blocks_are_found() -> None:
    assert len(units()) >= 20
    assert {unit.name.partition(":")[0] for unit in units()} >= {"README.md", "docs/tutorial.md", "docs/runner.md"}


class Polled:
    """A client that hands out messages one by one, keeps what is committed, and stops the loop at the end."""

    def __init__(self, values: list[str]) -> None:
        self._left = list(enumerate(values))
        self.committed = 0

    def poll(self, timeout_s: float) -> Polled:
        if not self._left:
            raise EOFError
        self.offset, self._value = self._left.pop(0)
        return self

    def value(self) -> str:
        return self._value

    def commit(self, message: Polled) -> None:
        self.committed = message.offset + 1


def test_the_loop_that_everybody_writes_loses_a_message() -> None:
    [block] = [block for block in of("python") if block.word == LOSES]
    consumer, saved, down = Polled(["first", "second", "third"]), [], type("DatabaseDown", (Exception,), {})

    def save(value: str) -> None:
        if value == "second":
            raise down
        saved.append(value)

    world: dict[str, Any] = {"consumer": consumer, "save": save, "DatabaseDown": down}
    with pytest.raises(EOFError):
        exec(compile(block.text, block.page, "exec", dont_inherit=True), world)
    assert saved == ["first", "third"]
    assert consumer.committed == 3, "past the one that was not saved: nobody will ever see it again"
