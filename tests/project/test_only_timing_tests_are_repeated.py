"""A test marked `timing` that fails is run again, at most twice, and the summary says so. No other test is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.project_files import ROOT

TESTS = """
import pytest

runs = {}


@pytest.fixture(params=[1, 2, 3])
def needs(request, tmp_path):
    runs[request.node.name] = runs.get(request.node.name, 0) + 1
    assert list(tmp_path.iterdir()) == [], "a run has fixtures of its own"
    (tmp_path / "used").touch()
    return request.param


@pytest.mark.timing
def test_in_time_at_last(needs, request):
    assert runs[request.node.name] == needs


@pytest.mark.timing
def test_never_in_time(needs):
    assert needs == 4, "too late"


def test_of_something_else(needs, request):
    assert runs[request.node.name] == needs


@pytest.fixture
def refuses(request):
    runs[request.node.name] = runs.get(request.node.name, 0) + 1
    assert runs[request.node.name] == 2


@pytest.mark.timing
def test_whose_fixture_fails(refuses):
    pass
"""


def run(tmp_path: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.repetition", "-p", "no:cacheprovider", "-q"]
    options = ["--strict-markers", "-o", "markers=timing", "--rootdir", str(tmp_path), "-c", os.devnull, "test_it.py"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    return subprocess.run(command + options, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)


def test_an_error_of_the_collection_is_reported_as_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, "import a_module_that_does_not_exist\n")
    assert "INTERNALERROR" not in done.stdout + done.stderr
    assert "No module named 'a_module_that_does_not_exist'" in done.stdout
    assert "1 error in" in done.stdout


def test_it_is_run_three_times_at_most_and_the_summary_names_it(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS)
    repeated = [line.partition(" - ")[0] for line in done.stdout.splitlines() if line.startswith("REPEATED ")]
    assert repeated == [
        "REPEATED test_it.py::test_in_time_at_last[2]",
        *["REPEATED test_it.py::test_in_time_at_last[3]"] * 2,
        *[f"REPEATED test_it.py::test_never_in_time[{number}]" for number in (1, 2, 3) for _ in range(2)],
    ], done.stdout
    assert "test_never_in_time[1] - AssertionError: too late" in done.stdout
    assert "5 failed, 4 passed, 1 error, 9 repeated in" in done.stdout
