"""`packages/neotool-common`: the import paths that the consumer pattern names lead to our runner."""

from __future__ import annotations

import importlib
import inspect
import shutil
import subprocess
import sys
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


def built(package: Path, folder: Path) -> tuple[set[str], str]:
    """The files of its wheel, and what it requires."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=package, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        [metadata] = [name for name in inside if name.endswith("/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    [required] = [line for line in lines if line.startswith("Requires-Dist: ")]
    return inside, required.removeprefix("Requires-Dist: ")


def test_built_in_a_checkout_it_takes_keepfast_from_there_and_elsewhere_a_release(tmp_path: Path) -> None:
    inside, required = built(PACKAGE, tmp_path / "here")
    assert {f"{module.replace('.', '/')}.py" for module in PATHS} | {"neotool_common/py.typed"} <= inside
    assert required == f"keepfast @ {ROOT.as_uri()}"
    elsewhere = tmp_path / "workflow" / "python" / "common"
    shutil.copytree(PACKAGE, elsewhere)
    assert built(elsewhere, tmp_path / "there")[1] == f"keepfast>={__version__}"


@pytest.mark.long
def test_pip_installs_it_from_a_checkout(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    python = tmp_path / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", PACKAGE], check=True)
    imports = "; ".join(f"from {module} import {name}" for module, name in PATHS.items())
    subprocess.run([python, "-c", imports], check=True, cwd=tmp_path)
