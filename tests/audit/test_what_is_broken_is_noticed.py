"""Breaking keepfast makes the tests fail that keep its rules: each break of `breaks`, made in a copy of the code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit import evidence
from tests.audit.breaks import BREAKS
from tests.audit.evidence import Evidence
from tests.audit.one_break import Break
from tests.support.project_files import ROOT, SOURCES

EVIDENCE = {name: value for name, value in vars(evidence).items() if isinstance(value, Evidence)}
TESTS_FAILED = 1
"""What pytest says when tests ran and failed; a module that cannot be imported is another number."""


class Copy:
    """The code, to be broken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(SOURCES, folder / SOURCES.name, ignore=shutil.ignore_patterns("__pycache__"))

    def notices(self, broken: Break, code: str, test: str) -> bool:
        """Whether the test fails while this is broken."""
        file = broken.file or code
        path = self._folder / SOURCES.name / file
        whole = path.read_text()
        assert broken.old in whole, f"{file} has changed; find another way to break it than {broken.new!r}"
        path.write_text(whole.replace(broken.old, broken.new))
        environ = {**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{test}"]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        path.write_text(whole)
        assert done.returncode in (0, TESTS_FAILED), f"{file}, {broken.new!r}: {done.stdout[-2000:]}"
        return done.returncode == TESTS_FAILED


@pytest.mark.breaks
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", BREAKS)
def test_every_break_is_noticed_and_every_test_notices_one(name: str, tmp_path: Path) -> None:
    copy, kept = Copy(tmp_path), EVIDENCE[name]
    silent, unnoticed = set(kept.tests), list[Break]()
    for broken in BREAKS[name]:
        noticed = False
        for test in kept.tests:
            if (not noticed or test in silent) and copy.notices(broken, kept.code, test):
                noticed = True
                silent.discard(test)
        if not noticed:
            unnoticed.append(broken)
    assert (unnoticed, silent) == ([], set())


def test_every_evidence_has_a_break_in_a_file_that_exists() -> None:
    assert set(BREAKS) == set(EVIDENCE)
    assert [name for name, breaks in BREAKS.items() if not breaks] == []
    files = {broken.file or EVIDENCE[name].code for name, breaks in BREAKS.items() for broken in breaks}
    assert [file for file in sorted(files) if not (SOURCES / file).is_file()] == []


def test_every_break_finds_what_it_replaces() -> None:
    places = [(broken.file or EVIDENCE[name].code, broken.old) for name, breaks in BREAKS.items() for broken in breaks]
    assert [(file, old) for file, old in places if old not in (SOURCES / file).read_text()] == []
