"""Checks of the files of an app's project, where the documents ask for particular ones."""

from __future__ import annotations

import re
from pathlib import Path

from keepfast.audit.checks_project import NO_FOLDER
from keepfast.audit.rule import Finding, failed, not_applicable, not_checkable, overruled, passed, per_app
from keepfast.audit.subject import Subject
from neotool_common.profiles.decisions import FIRST_MINUTE

tested_by_keepfast = not_checkable("keepfast implements it, and its own tests cover it.")
of_the_database = not_checkable("Database access is the app's own code; that of `keepfast new` complies.")
inside_the_compose_file = not_checkable("Compose files are not read; that of `keepfast new` complies.")
names_of_the_shared_package = not_checkable("An app may import keepfast directly; neotool_common re-exports it.")
COMPOSE_FILES = tuple(
    f"{name}{ending}" for name in ("compose", "docker-compose", "docker-compose.local") for ending in (".yaml", ".yml")
)


def root_of(folder: Path) -> Path:
    """The root of the package that contains this folder."""
    around = (folder, *folder.resolve().parents)
    return next((one for one in around if (one / "pyproject.toml").is_file()), folder)


def _pyproject(folder: Path) -> str:
    path = root_of(folder) / "pyproject.toml"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


@per_app
def is_a_package(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    root = root_of(subject.folder)
    wanted = {"pyproject.toml": "pyproject.toml", "src": "src/*/__init__.py", "tests": "tests/**/test_*.py"}
    missing = [name for name, pattern in wanted.items() if next(root.glob(pattern), None) is None]
    if not missing:
        return passed("It is a package with pyproject.toml, src and tests, or part of one.")
    return failed(f"The project has no {', '.join(missing)}.", "Use the layout of `keepfast new`.")


@per_app
def container(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if subject.dockerfile is not None:
        return passed("There is a Dockerfile.")
    return failed("There is no Dockerfile.", "Use the one from `keepfast new`.")


@per_app
def layout(subject: Subject) -> Finding:
    """The layout of flows and tasks."""
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if subject.has("src/*/flows/*.py") and subject.has("src/*/tasks/*.py"):
        return passed("There are flows and tasks.")
    return overruled(FIRST_MINUTE, "Another layout; the README of `keepfast new` maps its files to this one.")


@per_app
def own_command(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if re.search(r"(?m)^\[project\.scripts\]", _pyproject(subject.folder)):
        return passed("pyproject.toml has [project.scripts].")
    return failed("pyproject.toml has no [project.scripts].", 'Add one: shop-consumer = "shop.app:main".')


@per_app
def no_pythonpath(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if any("PYTHONPATH" in (subject.file(name) or "") for name in ("Dockerfile", *COMPOSE_FILES)):
        return failed("The image or the compose file sets PYTHONPATH.", "Install the package: pip install .")
    pytest_config = f"{_pyproject(subject.folder)}\n{subject.file('pytest.ini') or ''}"
    if re.search(r"(?m)^pythonpath\s*=", pytest_config):
        return overruled(FIRST_MINUTE, "Only pytest sets it, so that tests run before anything is installed.")
    return passed("PYTHONPATH is not set.")


@per_app
def composed(subject: Subject) -> Finding:
    if subject.dockerfile is None:
        return not_applicable("There is no Dockerfile." if subject.folder is not None else NO_FOLDER)
    if any(subject.has(name) for name in COMPOSE_FILES):
        return passed("There is a compose file.")
    return failed("There is no compose file.", "Use the one from `keepfast new`.")
