"""Looking at the Dockerfile of an app's project."""

from __future__ import annotations

import re
from collections.abc import Callable

from keepfast.audit.checks_project import NO_FOLDER
from keepfast.audit.clause import Finding, Look, failed, not_applicable, overruled, passed, whole
from keepfast.audit.decisions import SLIM_IMAGE
from keepfast.audit.subject import Subject

_SYSTEM_PACKAGES = re.compile(r"apt(?:-get)? install|apk add")
_COMPILERS = re.compile(r"\b(?:gcc|g\+\+|build-essential|musl-dev|clang)\b")
_SHELLS = re.compile(r"""\[\s*"(?:\S*/)?(?:ba|da|a)?sh"\s*,\s*"-\w*c"\s*,\s*"(?!\s*exec\b)""")
_HEALTH_TIMINGS = {"interval": "30s", "timeout": "10s", "start-period": "40s", "retries": "3"}
_AS_WE_DO = "Take the one of the Dockerfile that `keepfast new` writes."


def in_dockerfile(look: Callable[[list[str]], Finding]) -> Look:
    """If there is one: `container` says so where there is none."""

    def looked(subject: Subject) -> Finding:
        if subject.dockerfile is None:
            return not_applicable("There is no Dockerfile." if subject.folder is not None else NO_FOLDER)
        return look(subject.dockerfile)

    return whole(looked)


def _in_the_end(lines: list[str]) -> list[str]:
    """The last stage, with the earlier one that it begins with, if it does: what these say holds for the image."""
    begins = [number for number, line in enumerate(lines) if line.upper().startswith("FROM ")]
    if not begins:
        return lines
    *before, last = begins
    base, _ = _stage(lines[last])
    for number, begin in enumerate(before):
        if base.lower() == _stage(lines[begin])[1]:
            return _in_the_end(lines[: begins[number + 1]]) + lines[last + 1 :]
    return lines[last:]


def _stage(line: str) -> tuple[str, str]:
    """What a stage begins with, and its name."""
    base, *named = [word for word in line.split()[1:] if not word.startswith("--")] or [""]
    return base, named[1].lower() if len(named) > 1 else ""


def _base(lines: list[str]) -> str:
    first, *_ = [*_in_the_end(lines), ""]
    return _stage(first)[0] if first.upper().startswith("FROM ") else ""


def _said_last(lines: list[str], instruction: str) -> str | None:
    """What the last of these instructions says that holds for the image."""
    words = (line.split(maxsplit=1) for line in _in_the_end(lines))
    return next((said[1].strip() for said in reversed([*words]) if said[0].upper() == instruction and said[1:]), None)


@in_dockerfile
def small_base(lines: list[str]) -> Finding:
    base = _base(lines)
    if "alpine" in base:
        return passed(f"{base}.")
    if "slim" in base or "distroless" in base:
        return overruled(SLIM_IMAGE, f"{base}: the Kafka client has no wheel for Alpine.")
    return failed(f"The image begins with {base}.", "Begin with python:3.x-slim.")


@in_dockerfile
def not_root(lines: list[str]) -> Finding:
    user = _said_last(lines, "USER")
    if user and user.partition(":")[0] not in {"root", "0"}:
        return passed(f"It runs as {user}.")
    return failed("It runs as root.", "Make a user with uid 1000, and say USER 1000:1000 before the entry point.")


@in_dockerfile
def uid_1000(lines: list[str]) -> Finding:
    user = (_said_last(lines, "USER") or "root").partition(":")[0]
    made = re.search(r"(?:--uid|-u)[ =]1000\b", "\n".join(_in_the_end(lines)))
    if user == "1000" or (made and not user.isdigit() and user != "root"):
        return passed("Its uid is 1000.")
    return failed("It does not run with uid 1000.", "Make a user with that uid, and say USER 1000:1000.")


@in_dockerfile
def health_check(lines: list[str]) -> Finding:
    if "/health" in (_said_last(lines, "HEALTHCHECK") or ""):
        return passed("HEALTHCHECK asks /health.")
    return failed("No HEALTHCHECK asks /health.", _AS_WE_DO)


@in_dockerfile
def health_timings(lines: list[str]) -> Finding:
    check = _said_last(lines, "HEALTHCHECK") or ""
    wrong = [f"--{name}={told}" for name, told in _HEALTH_TIMINGS.items() if f"--{name}={told} " not in check]
    if not wrong:
        return passed("Every 30 s, 10 s to answer, 40 s to start, 3 times.")
    return failed(f"The HEALTHCHECK does not say {' '.join(wrong)}.", _AS_WE_DO)


@in_dockerfile
def port_exposed(lines: list[str]) -> Finding:
    if _said_last(lines, "EXPOSE"):
        return passed("The port of health and metrics is exposed.")
    return failed("No port is exposed, so nobody is told where health and metrics are.", "Add EXPOSE 8080.")


@in_dockerfile
def entry_point(lines: list[str]) -> Finding:
    entry = _said_last(lines, "ENTRYPOINT") or _said_last(lines, "CMD") or ""
    if entry.startswith("[") and not _SHELLS.match(entry):
        return passed(f"{entry}.")
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


@in_dockerfile
def installed(lines: list[str]) -> Finding:
    if re.search(r"pip install|uv (?:sync|pip)|poetry install|pdm (?:install|sync)", "\n".join(lines)):
        return passed("Packages are installed into the image.")
    return failed("Nothing is installed into the image.", "Install the package and what it needs: pip install .")


@in_dockerfile
def has_the_code(lines: list[str]) -> Finding:
    if any(re.match(r"(?i)(?:COPY|ADD)\s", line) for line in _in_the_end(lines)):
        return passed("The code is copied.")
    return failed("Nothing is copied into the image.", "Copy src and install it.")


@in_dockerfile
def alpine_tools(lines: list[str]) -> Finding:
    text = "\n".join(lines)
    if "alpine" not in _base(lines):
        return overruled(SLIM_IMAGE, "The image is not Alpine's, and has the tools of its own system.")
    if re.search(r"apt(?:-get)? install|\buseradd\b", text):
        return failed("apt-get and useradd are not there on Alpine.", "Use apk add --no-cache, addgroup and adduser.")
    return passed("It uses what Alpine has.")


@in_dockerfile
def few_packages(lines: list[str]) -> Finding:
    heavy = [
        line
        for line in _in_the_end(lines)
        if _SYSTEM_PACKAGES.search(line) and not re.search(r"--no-install-recommends|--no-cache\b", line)
    ]
    if not heavy:
        return passed("Nothing is installed that was not asked for.")
    return failed(
        "Packages of the system come with what they recommend, or with a cache.",
        "Use apt-get install --no-install-recommends, or apk add --no-cache.",
    )


@in_dockerfile
def no_compiler(lines: list[str]) -> Finding:
    if any(_SYSTEM_PACKAGES.search(line) and _COMPILERS.search(line) for line in _in_the_end(lines)):
        return failed("A compiler stays in the image.", "Compile in an earlier stage, and copy what it made.")
    return passed("There is no compiler in the image.")
