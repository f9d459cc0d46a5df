"""`packages/neotool-common`: the import paths that the consumer pattern names lead to our runner."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from keepfast import __version__, runner
from tests.support.project_files import ROOT

PACKAGE = ROOT / "packages" / "neotool-common"
PATHS = {
    "neotool_common.consumer_base": "KafkaConsumerRunner",
    "neotool_common.error_classification": "is_retryable_error",
    "neotool_common.retry_utils": "calculate_backoff",
}


HOOKS = {
    *("consumer_factory", "producer_factory", "retry_config", "message_factory", "process_message", "dlq_publisher"),
    *("rate_limit_min_delay_ms", "health_server_start", "health_server_stop", "running_flag_setter"),
    *("cleanup_callback", "message_context", "logger"),
}
"""By these names the pattern hands them over."""


def test_the_paths_of_the_pattern_lead_to_our_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE / "src"))
    offered = set[str]()
    for module, name in PATHS.items():
        found = importlib.import_module(module)
        assert name in found.__all__
        assert all(getattr(found, one) is getattr(runner, one) for one in found.__all__)
        offered |= set(found.__all__)
    assert offered == set(runner.__all__), "and nothing of the runner is missing"
    assert set(inspect.signature(runner.KafkaConsumerRunner).parameters) >= HOOKS


def test_it_is_built_with_its_modules_and_needs_a_keepfast_that_has_the_runner(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=PACKAGE, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert {f"{module.replace('.', '/')}.py" for module in PATHS} | {"neotool_common/py.typed"} <= inside
    [needed] = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["dependencies"]
    assert needed == f"keepfast>={__version__}"
