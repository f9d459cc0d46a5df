"""`packages/neotool-common`: the import paths that the consumer pattern names lead to our runner."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from holdfast import __version__, runner
from tests.project.files import ROOT

PACKAGE = ROOT / "packages" / "neotool-common"
PATHS = {
    "neotool_common.consumer_base": "KafkaConsumerRunner",
    "neotool_common.error_classification": "is_retryable_error",
    "neotool_common.retry_utils": "calculate_backoff",
}


def test_the_paths_of_the_pattern_lead_to_our_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE / "src"))
    for module, name in PATHS.items():
        assert getattr(importlib.import_module(module), name) is getattr(runner, name)


def test_it_is_built_with_its_modules_and_needs_a_holdfast_that_has_the_runner(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=PACKAGE, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert {f"{module.replace('.', '/')}.py" for module in PATHS} | {"neotool_common/py.typed"} <= inside
    [needed] = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["dependencies"]
    assert needed == f"holdfast>={__version__}"
