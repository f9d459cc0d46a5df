"""Looking at the files around an app: README, Dockerfile, tests."""

from __future__ import annotations

import re
from collections.abc import Callable

from holdfast.audit.clause import Finding, Look, failed, not_applicable, overruled, passed, whole
from holdfast.audit.decisions import SLIM_IMAGE
from holdfast.audit.subject import Subject

_NO_FOLDER = "The files of the app's project were not found; name its folder with --project."
_CONFIGURATION = re.compile(r"KAFKA_BROKERS|HOLDFAST_|holdfast\.toml|(?im:^#+ .*(?:configur|settings))")


@whole
def groups_are_documented(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(_NO_FOLDER)
    readme, env = subject.readme or "", subject.settings.app.env
    groups = [one.own.group for one in subject.consumers]
    missing = [name for name in groups if name not in readme and name.replace(f".{env}", ".{env}") not in readme]
    if not missing:
        return passed("README names every group.")
    return failed(f"README does not name {', '.join(missing)}.", "Write each consumer group into the project's README.")


@whole
def configuration_is_documented(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(_NO_FOLDER)
    if _CONFIGURATION.search(subject.readme or ""):
        return passed("README tells the configuration.")
    return failed("README does not tell the configuration.", "Write a table of the variables that matter into it.")


@whole
def has_tests(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(_NO_FOLDER)
    if subject.has("tests/**/test_*.py") or subject.has("test_*.py"):
        return passed("There are tests.")
    return failed("There are no tests.", "Write some with holdfast.testing.harness; `holdfast new` shows how.")


@whole
def is_a_package(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(_NO_FOLDER)
    around = [subject.folder, *subject.folder.resolve().parents]
    root = next((folder for folder in around if (folder / "pyproject.toml").is_file()), subject.folder)
    wanted = {"pyproject.toml": "pyproject.toml", "src": "src/*/__init__.py", "tests": "tests/**/test_*.py"}
    missing = [name for name, pattern in wanted.items() if next(root.glob(pattern), None) is None]
    if not missing:
        return passed("It is a package with pyproject.toml, src and tests, or a part of one.")
    return failed(f"The project has no {', '.join(missing)}.", "Lay it out as `holdfast new` does.")


def in_dockerfile(look: Callable[[list[str]], Finding]) -> Look:
    """If there is one: `container` says so where there is none."""

    def looked(subject: Subject) -> Finding:
        if subject.dockerfile is None:
            return not_applicable("There is no Dockerfile." if subject.folder is not None else _NO_FOLDER)
        return look(subject.dockerfile)

    return whole(looked)


@whole
def container(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(_NO_FOLDER)
    if subject.dockerfile is not None:
        return passed("There is a Dockerfile.")
    return failed("There is no Dockerfile.", "Take the one that `holdfast new` writes.")


@in_dockerfile
def small_base(lines: list[str]) -> Finding:
    base = [line.split()[1] for line in lines if line.upper().startswith("FROM ")][-1:] or [""]
    if "alpine" in base[0]:
        return passed(f"{base[0]}.")
    if "slim" in base[0] or "distroless" in base[0]:
        return overruled(SLIM_IMAGE, f"{base[0]}: the Kafka client has no wheel for Alpine.")
    return failed(f"The image begins with {base[0]}.", "Begin with python:3.x-slim.")


@in_dockerfile
def not_root(lines: list[str]) -> Finding:
    users = [line.split(maxsplit=1)[1].strip() for line in lines if line.upper().startswith("USER ")]
    if users and users[-1].partition(":")[0] not in {"root", "0"}:
        return passed(f"It runs as {users[-1]}.")
    return failed("It runs as root.", "Make a user with uid 1000, and say USER 1000:1000 before the entry point.")


@in_dockerfile
def health_check(lines: list[str]) -> Finding:
    if any(line.upper().startswith("HEALTHCHECK") and "/health" in line for line in lines):
        return passed("HEALTHCHECK asks /health.")
    return failed("No HEALTHCHECK asks /health.", "Take the one of the Dockerfile that `holdfast new` writes.")


@in_dockerfile
def entry_point(lines: list[str]) -> Finding:
    entries = [line for line in lines if re.match(r"(?i)(?:ENTRYPOINT|CMD)\s", line)]
    if entries and re.match(r"(?i)(?:ENTRYPOINT|CMD)\s+\[", entries[-1]):
        return passed(f"{entries[-1]}.")
    return failed(
        "A shell stands before the consumer and keeps SIGTERM from it.", 'Write it as a list: ENTRYPOINT ["name"].'
    )


@in_dockerfile
def no_pip_cache(lines: list[str]) -> Finding:
    text = "\n".join(lines)
    if "pip install" not in text or "PIP_NO_CACHE_DIR" in text or "--no-cache-dir" in text:
        return passed("pip keeps no cache in the image.")
    return failed("pip's cache stays in the image.", "Set ENV PIP_NO_CACHE_DIR=1, or use --no-cache-dir.")


@in_dockerfile
def dependencies_first(lines: list[str]) -> Finding:
    copies = [line for line in lines if re.match(r"(?i)(?:COPY|ADD)\s", line)]
    if copies and re.search(r"pyproject\.toml|requirements|\.lock", copies[0]):
        return passed("Dependencies are installed before the code is copied.")
    return failed("Every change of the code installs all dependencies again.", "Copy pyproject.toml and install first.")
