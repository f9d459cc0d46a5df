"""What the package asks for, and what the locks pin."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from keepfast.cli.doctor_environment import EXTRAS
from tests.support.project_files import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    return {match[0].lower() for text in requirements if (match := re.match(r"[\w.-]+", text))}


def entries(lock: Path) -> list[str]:
    """One text a pinned package, its continuation lines joined."""
    return lock.read_text().replace("\\\n", " ").splitlines()


def test_the_decision_record_lists_the_dependencies_of_the_core() -> None:
    record = (ROOT / "docs" / "decisions" / "0035-core-dependencies.md").read_text()
    listed = re.findall(r"^\| `([\w.-]+)` \|", record, re.MULTILINE)
    assert listed == sorted(names(PYPROJECT["project"]["dependencies"]))


def test_the_doctor_knows_every_extra() -> None:
    assert list(EXTRAS) == list(PYPROJECT["project"]["optional-dependencies"])


def test_there_are_locks() -> None:
    assert [lock.name for lock in LOCKS] == ["demo.lock", "deploy.lock", "dev.lock", "java.lock"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.name))
def test_a_lock_pins_everything_with_hashes(lock: Path) -> None:
    pinned = re.compile(r"[\w.-]+==\S+(?: ; [^\\]+?)?(?:\s+--hash=sha256:[0-9a-f]{64})+")
    assert [entry for entry in entries(lock) if not pinned.fullmatch(entry)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.name))
def test_a_lock_holds_no_addresses(lock: Path) -> None:
    assert re.findall(r"\S*://\S*|file:\S*|--(?:extra-)?index-url|--find-links|--trusted-host", lock.read_text()) == []


def test_what_the_demo_needs_is_locked_in_the_same_versions_for_the_tests() -> None:
    demo, dev = (
        {
            re.sub(r" ; [^\\]+?(?=\s+--hash)", "", entry) for entry in entries(ROOT / "requirements" / name)
        }  # where it applies
        for name in ("demo.lock", "dev.lock")
    )
    assert {"rich", "hatchling", "confluent-kafka"} <= {entry.partition("==")[0] for entry in demo}
    assert demo - dev == set()


def test_the_locks_hold_everything_that_is_asked_for() -> None:
    extras: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]
    asked = names(PYPROJECT["project"]["dependencies"] + PYPROJECT["dependency-groups"]["dev"])
    asked |= {name for requirements in extras.values() for name in names(requirements)}
    locked = {entry.partition("==")[0] for lock in LOCKS for entry in entries(lock)}
    assert asked - locked == set()
