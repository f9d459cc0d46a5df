"""What a type checker sees of an app: decorators keep types, and what is no middleware is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.project_files import ROOT

SAMPLE = """
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, assert_type

from keepfast import App, BatchContext, Context, Provide
from keepfast.testing.harness import harness

app = App("shop")


@app.middleware
def timed(ctx: Context | BatchContext) -> Iterator[None]:
    ctx.logger.info("attempt %d of %s", ctx.attempt, ctx.group)
    yield


@app.middleware
async def timed_async(ctx: Context) -> AsyncIterator[None]:
    yield


def rate() -> float:
    return 1.1


def own() -> Iterator[None]:
    yield


@app.consumer("shop.order.v1", middleware=[own])
async def charge(order: bytes, fx: Annotated[float, Provide(rate)], ctx: Context) -> int:
    return len(order) + int(fx)


async def use(ctx: Context) -> None:
    assert_type(await charge(b"", 1.0, ctx), int)
    assert_type(timed(ctx), Iterator[None])
    assert_type(timed_async(ctx), AsyncIterator[None])
    async with harness(app, resources=object(), overrides={rate: lambda: 2.0}):
        pass
"""
WRONG = """

@app.middleware  # wrong
def no_generator(ctx: Context) -> None: ...


@app.middleware  # wrong
def yields_something(ctx: Context) -> Iterator[int]:
    yield 1


Provide(5)  # wrong
app.consumer("shop.order.v1", middleware=[rate])  # wrong
"""


def checked(folder: Path, text: str) -> tuple[int, set[int]]:
    """The exit code of mypy, and the lines that it names."""
    path = folder / "sample.py"
    path.write_text(text)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, {int(line) for line in re.findall(r"sample\.py:(\d+): error", done.stdout)}


def test_decorators_keep_types_and_wrong_functions_are_refused(tmp_path: Path) -> None:
    text = SAMPLE + WRONG
    wrong = {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}
    assert checked(tmp_path, text) == (1, wrong)
