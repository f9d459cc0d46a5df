"""Looking at the files around an app: README, pyproject.toml, tests, compose file."""

from __future__ import annotations

import re
from pathlib import Path

from keepfast.audit.clause import Finding, failed, not_applicable, outside, overruled, passed, whole
from keepfast.audit.decisions import FIRST_MINUTE
from keepfast.audit.subject import Subject

NO_FOLDER = "The files of the app's project were not found; name its folder with --project."
_CONFIGURATION = re.compile(r"KAFKA_BROKERS|KEEPFAST_|keepfast\.toml|(?im:^#+ .*(?:configur|settings))")


tested_by_keepfast = outside("keepfast does it, and its own tests try it; they are not in this app.")
of_the_database = outside("How an app uses its database is in its own code; `keepfast new` writes code that does so.")
inside_the_compose_file = outside("A compose file is not read; the one that `keepfast new` writes does so.")
names_of_the_shared_package = outside("An app may import keepfast; neotool_common has the same under its own names.")


def root_of(folder: Path) -> Path:
    """Of the package that these files are, or are a part of."""
    around = (folder, *folder.resolve().parents)
    return next((one for one in around if (one / "pyproject.toml").is_file()), folder)


def _pyproject(folder: Path) -> str:
    path = root_of(folder) / "pyproject.toml"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


@whole
def groups_are_documented(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    readme, env = subject.readme or "", subject.settings.app.env
    groups = [one.own.group for one in subject.consumers]
    missing = [name for name in groups if name not in readme and name.replace(f".{env}", ".{env}") not in readme]
    if not missing:
        return passed("README names every group.")
    silent = "README does not name" if subject.readme is not None else "There is no README that names"
    return failed(f"{silent} {', '.join(missing)}.", "Write each consumer group into the project's README.")


@whole
def configuration_is_documented(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if _CONFIGURATION.search(subject.readme or ""):
        return passed("README tells the configuration.")
    silent = "README does not tell" if subject.readme is not None else "There is no README that tells"
    return failed(f"{silent} the configuration.", "Write a table of the variables that matter into it.")


@whole
def has_tests(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if subject.has("tests/**/test_*.py") or subject.has("test_*.py"):
        return passed("There are tests.")
    return failed("There are no tests.", "Write some with keepfast.testing.harness; `keepfast new` shows how.")


@whole
def is_a_package(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    root = root_of(subject.folder)
    wanted = {"pyproject.toml": "pyproject.toml", "src": "src/*/__init__.py", "tests": "tests/**/test_*.py"}
    missing = [name for name, pattern in wanted.items() if next(root.glob(pattern), None) is None]
    if not missing:
        return passed("It is a package with pyproject.toml, src and tests, or a part of one.")
    return failed(f"The project has no {', '.join(missing)}.", "Lay it out as `keepfast new` does.")


@whole
def container(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if subject.dockerfile is not None:
        return passed("There is a Dockerfile.")
    return failed("There is no Dockerfile.", "Take the one that `keepfast new` writes.")


@whole
def layout(subject: Subject) -> Finding:
    """Of flows and tasks."""
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if subject.has("src/*/flows/*.py") and subject.has("src/*/tasks/*.py"):
        return passed("There are flows and tasks.")
    return overruled(FIRST_MINUTE, "Laid out in another way; `keepfast new` writes into README which file is which.")


@whole
def own_command(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if re.search(r"(?m)^\[project\.scripts\]", _pyproject(subject.folder)):
        return passed("pyproject.toml has [project.scripts].")
    return failed("pyproject.toml has no [project.scripts].", 'Add one: shop-consumer = "shop.app:main".')


@whole
def no_path_bent(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if any("PYTHONPATH" in (subject.file(name) or "") for name in ("Dockerfile", *COMPOSE_FILES)):
        return failed("The image or the compose file sets PYTHONPATH.", "Install the package: pip install .")
    pytest_says = f"{_pyproject(subject.folder)}\n{subject.file('pytest.ini') or ''}"
    if re.search(r"(?m)^pythonpath\s*=", pytest_says):
        return overruled(
            FIRST_MINUTE, "pytest finds the code by itself, so that tests run before anything is installed."
        )
    return passed("Nobody sets PYTHONPATH.")


COMPOSE_FILES = tuple(
    f"{name}{ending}" for name in ("compose", "docker-compose", "docker-compose.local") for ending in (".yaml", ".yml")
)


@whole
def composed(subject: Subject) -> Finding:
    if subject.dockerfile is None:
        return not_applicable("There is no Dockerfile." if subject.folder is not None else NO_FOLDER)
    if any(subject.has(name) for name in COMPOSE_FILES):
        return passed("There is a compose file.")
    return failed("There is no compose file.", "Take the one that `keepfast new` writes.")


@whole
def dockerignore(subject: Subject) -> Finding:
    if subject.dockerfile is None:
        return not_applicable("There is no Dockerfile." if subject.folder is not None else NO_FOLDER)
    if subject.has(".dockerignore"):
        return passed("There is a .dockerignore.")
    return failed(
        "There is no .dockerignore: .git, and perhaps .env, are sent to whoever builds the image.",
        "Take the one that `keepfast new` writes.",
    )
