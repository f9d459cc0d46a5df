"""What a type checker sees of an app: decorators keep types, and what is no middleware is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.project_files import ROOT

SAMPLE = """
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, assert_type

from keepfast import (
    App, BatchContext, Context, DeadLettered, Halted, Pattern, Provide, Receipt, RetryPolicy, SendFuture
)
from keepfast.testing.harness import harness


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[float]:
    yield 1.0


app = App("shop", lifespan=lifespan)


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


@app.consumer(Pattern("audit.*"), retry=RetryPolicy(max_retries=2), filter=lambda record: record.key is not None)
def audit(events: list[dict[str, Any]], ctx: BatchContext) -> None: ...


@app.on(DeadLettered, Halted)
def report(event: DeadLettered | Halted) -> str:
    return event.reason


async def use(ctx: Context, event: Halted) -> None:
    assert_type(report(event), str)
    assert_type(app.send("t", {}), SendFuture)
    assert_type(await app.send("t", {}), Receipt)
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
app.consumer("shop.order.v1", oder="key")  # wrong
app.consumer("shop.order.v1", order="kye")  # wrong
app.consumer("shop.order.v1", retry=5)  # wrong
app.consumer("shop.order.v1", filter="login")  # wrong
app.consumer(["shop.order.v1"])  # wrong
app.on(ValueError)  # wrong
RetryPolicy(max_retires=3)  # wrong
App("shop", lifespan=rate)  # wrong
"""


def mypy(path: Path) -> tuple[int, set[int]]:
    """The exit code of mypy, and the lines that it names."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, {int(line) for line in re.findall(r"sample\.py:(\d+): error", done.stdout)}


def pyright(*arguments: str, cwd: Path) -> tuple[int, list[dict[str, Any]]]:
    """Its exit code, and its errors."""
    command = shutil.which("pyright") or shutil.which("basedpyright")
    assert command is not None, "pyright is not on the PATH"
    whole = [command, "--pythonpath", sys.executable, "--outputjson", "--level", "error", *arguments]
    done = subprocess.run(whole, cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)["generalDiagnostics"]


@pytest.mark.parametrize("checker", ["mypy", pytest.param("pyright", marks=pytest.mark.pyright)])
def test_decorators_keep_types_and_wrong_functions_are_refused(tmp_path: Path, checker: str) -> None:
    text = SAMPLE + WRONG
    wrong = {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}
    path = tmp_path / "sample.py"
    path.write_text(text)
    if checker == "mypy":
        assert mypy(path) == (1, wrong)
        return
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    code, errors = pyright("-p", str(tmp_path), cwd=tmp_path)
    assert (code, {one["range"]["start"]["line"] + 1 for one in errors}) == (1, wrong)


@pytest.mark.pyright
def test_the_package_and_the_examples_are_clean_in_pyright() -> None:
    assert pyright("-p", str(ROOT / "pyproject.toml"), cwd=ROOT) == (0, [])
