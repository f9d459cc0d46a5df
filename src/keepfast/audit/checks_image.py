"""Checks of the Dockerfile of an app's project."""

from __future__ import annotations

import re
from collections.abc import Callable

from keepfast.audit.checks_project import NO_FOLDER
from keepfast.audit.rule import Check, Finding, failed, not_applicable, passed, per_app
from keepfast.audit.subject import Subject

_SYSTEM_PACKAGES = re.compile(r"apt(?:-get)? install|apk add")
_COMPILERS = re.compile(r"\b(?:gcc|g\+\+|build-essential|musl-dev|clang)\b")
_SHELLS = re.compile(r"""\[\s*"(?:\S*/)?(?:ba|da|a)?sh"\s*,\s*"-\w*c"\s*,\s*"(?!\s*exec\b)""")
SEE_TEMPLATE = "Use the one from the Dockerfile of `keepfast new`."


def in_dockerfile(check: Callable[[list[str]], Finding]) -> Check:
    """Return a check of the Dockerfile's instructions; not applicable without a Dockerfile."""

    def check_subject(subject: Subject) -> Finding:
        return _no_dockerfile(subject) if subject.dockerfile is None else check(subject.dockerfile)

    return per_app(check_subject)


def final_stage(lines: list[str]) -> list[str]:
    """Return the instructions of the final image: the last stage, after the earlier stage that it is based on."""
    begins = [number for number, line in enumerate(lines) if line.upper().startswith("FROM ")]
    if not begins:
        return lines
    *before, last = begins
    base, _ = stage_of(lines[last])
    for number, begin in enumerate(before):
        if base.lower() == stage_of(lines[begin])[1]:
            return final_stage(lines[: begins[number + 1]]) + lines[last + 1 :]
    return lines[last:]


def stage_of(line: str) -> tuple[str, str]:
    """Return the base image of a stage, and its name."""
    base, *named = [word for word in line.split()[1:] if not word.startswith("--")] or [""]
    return base, named[1].lower() if len(named) > 1 else ""


def last_value(lines: list[str], instruction: str) -> str | None:
    """Return the arguments of the last such instruction of the final image, or None."""
    split = [line.split(maxsplit=1) for line in final_stage(lines)]
    return next((one[1].strip() for one in reversed(split) if one[0].upper() == instruction and one[1:]), None)


@in_dockerfile
def not_root(lines: list[str]) -> Finding:
    user = last_value(lines, "USER")
    if user and user.partition(":")[0] not in {"root", "0"}:
        return passed(f"It runs as {user}.")
    return failed("It runs as root.", "Create a user with uid 1000, and add USER 1000:1000 before the entry point.")


@per_app
def health_check(subject: Subject) -> Finding:
    if subject.dockerfile is None:
        return _no_dockerfile(subject)
    check, port = last_value(subject.dockerfile, "HEALTHCHECK") or "", _port(subject)
    if "/health" not in check:
        return failed("No HEALTHCHECK requests /health.", SEE_TEMPLATE)
    asked = re.search(r":(\d+)/health", check)
    if asked and asked[1] != port:
        return failed(
            f"HEALTHCHECK requests port {asked[1]}, and health is on port {port}.", "Use the port of HEALTH_CHECK_PORT."
        )
    return passed("HEALTHCHECK requests /health.")


def _no_dockerfile(subject: Subject) -> Finding:
    return not_applicable("There is no Dockerfile." if subject.folder is not None else NO_FOLDER)


def _port(subject: Subject) -> str:
    """Return the port of health in the container: the image's variable, or the setting."""
    own = re.search(r"(?im)^ENV\b.*\bHEALTH_CHECK_PORT[= ]\"?(\d+)", "\n".join(subject.dockerfile or ()))
    return own[1] if own else str(subject.settings.health.port)


@per_app
def port_exposed(subject: Subject) -> Finding:
    if subject.dockerfile is None:
        return _no_dockerfile(subject)
    ports, port = last_value(subject.dockerfile, "EXPOSE") or "", _port(subject)
    if "$" in ports or port in re.findall(r"\d+", ports):
        return passed(f"The port of health and metrics is exposed: {ports}.")
    return failed(f"The port of health and metrics, {port}, is not exposed.", f"Add EXPOSE {port}.")


@in_dockerfile
def entry_point(lines: list[str]) -> Finding:
    entry = last_value(lines, "ENTRYPOINT") or last_value(lines, "CMD") or ""
    if entry.startswith("[") and not _SHELLS.match(entry):
        return passed(f"{entry}.")
    return failed("A shell runs the consumer and does not forward SIGTERM.", 'Use the exec form: ENTRYPOINT ["name"].')


@in_dockerfile
def no_pip_cache(lines: list[str]) -> Finding:
    text = "\n".join(lines)
    if "pip install" not in text or "PIP_NO_CACHE_DIR" in text or "--no-cache-dir" in text:
        return passed("The image contains no pip cache.")
    return failed("The image contains pip's cache.", "Set ENV PIP_NO_CACHE_DIR=1, or use --no-cache-dir.")


@in_dockerfile
def dependencies_first(lines: list[str]) -> Finding:
    copies = [line for line in lines if re.match(r"(?i)(?:COPY|ADD)\s", line)]
    if copies and re.search(r"pyproject\.toml|requirements|\.lock", copies[0]):
        return passed("Dependencies are installed before the code is copied.")
    return failed("Every code change installs all dependencies again.", "Copy pyproject.toml and install first.")


@in_dockerfile
def few_packages(lines: list[str]) -> Finding:
    heavy = [
        line
        for line in final_stage(lines)
        if _SYSTEM_PACKAGES.search(line) and not re.search(r"--no-install-recommends|--no-cache\b", line)
    ]
    if not heavy:
        return passed("No recommended packages are installed.")
    return failed(
        "System packages are installed with recommended packages, or with a cache.",
        "Use apt-get install --no-install-recommends, or apk add --no-cache.",
    )


@in_dockerfile
def no_compiler(lines: list[str]) -> Finding:
    if any(_SYSTEM_PACKAGES.search(line) and _COMPILERS.search(line) for line in final_stage(lines)):
        return failed("The image contains a compiler.", "Compile in an earlier stage, and copy the result.")
    return passed("The image contains no compiler.")
