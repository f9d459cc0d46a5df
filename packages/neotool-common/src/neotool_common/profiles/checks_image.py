"""Checks of the Dockerfile, where the consumer pattern asks for particular contents."""

from __future__ import annotations

import re
from typing import Final

from keepfast.audit.checks_image import SEE_TEMPLATE, final_stage, in_dockerfile, last_value, stage_of
from keepfast.audit.rule import Finding, failed, overruled, passed
from neotool_common.profiles.decisions import SLIM_IMAGE

_HEALTH_TIMINGS: Final = {"interval": "30s", "timeout": "10s", "start-period": "40s", "retries": "3"}


def _base(lines: list[str]) -> str:
    first, *_ = [*final_stage(lines), ""]
    return stage_of(first)[0] if first.upper().startswith("FROM ") else ""


@in_dockerfile
def small_base(lines: list[str]) -> Finding:
    base = _base(lines)
    if "alpine" in base:
        return passed(f"{base}.")
    if "slim" in base or "distroless" in base:
        return overruled(SLIM_IMAGE, f"{base}: the Kafka client has no wheel for Alpine.")
    return failed(f"The base image is {base}.", "Use python:3.x-slim.")


@in_dockerfile
def uid_1000(lines: list[str]) -> Finding:
    user = (last_value(lines, "USER") or "root").partition(":")[0]
    created = re.search(r"(?:--uid|-u)[ =]1000\b", "\n".join(final_stage(lines)))
    if user == "1000" or (created and not user.isdigit() and user != "root"):
        return passed("Its uid is 1000.")
    return failed("It does not run with uid 1000.", "Create a user with that uid, and add USER 1000:1000.")


@in_dockerfile
def health_timings(lines: list[str]) -> Finding:
    check = last_value(lines, "HEALTHCHECK") or ""
    wrong = [f"--{name}={value}" for name, value in _HEALTH_TIMINGS.items() if f"--{name}={value} " not in check]
    if not wrong:
        return passed("Interval 30 s, timeout 10 s, start period 40 s, 3 retries.")
    return failed(f"The HEALTHCHECK has no {' '.join(wrong)}.", SEE_TEMPLATE)


@in_dockerfile
def installed(lines: list[str]) -> Finding:
    if re.search(r"pip install|uv (?:sync|pip)|poetry install|pdm (?:install|sync)", "\n".join(lines)):
        return passed("Packages are installed into the image.")
    return failed("Nothing is installed into the image.", "Install the package with its dependencies: pip install .")


@in_dockerfile
def has_the_code(lines: list[str]) -> Finding:
    if any(re.match(r"(?i)(?:COPY|ADD)\s", line) for line in final_stage(lines)):
        return passed("The code is copied.")
    return failed("Nothing is copied into the image.", "Copy src and install it.")


@in_dockerfile
def alpine_tools(lines: list[str]) -> Finding:
    text = "\n".join(lines)
    if "alpine" not in _base(lines):
        return overruled(SLIM_IMAGE, "The image is not based on Alpine and has other tools.")
    if re.search(r"apt(?:-get)? install|\buseradd\b", text):
        return failed("Alpine has no apt-get and no useradd.", "Use apk add --no-cache, addgroup and adduser.")
    return passed("It uses Alpine's tools.")
