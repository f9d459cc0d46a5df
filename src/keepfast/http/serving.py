"""Where health and metrics are served, and what happens when that place is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from keepfast.core.errors import ConfigError
from keepfast.http.http import UNIX, Server
from keepfast.http.pages import Pages
from keepfast.settings import HealthSettings, Settings
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.http")


def served(pages: Pages, health: HealthSettings, *, required: bool) -> Server | None:
    """A server that answers already; None if it is switched off, or cannot be had and is not `required`.

    Raises ConfigError if it cannot be had and is.
    """
    if not health.enabled:
        return None
    server = Server(pages)
    try:
        server.start(health.host, health.port)
    except OSError as error:
        where = f"{health.host}:{health.port}"
        why = error.strerror or str(error)
        what_to_do = "set HEALTH_CHECK_PORT to another port (0: any free one), or HEALTH_CHECK_ENABLED=false"
        if required:
            raise ConfigError(
                f"Health and metrics cannot be served on {where} ({why}): {what_to_do}, or"
                " KEEPFAST_HEALTH_REQUIRED=false to run without them."
            ) from error
        log.warning("health_not_served", address=where, error=why, what_to_do=what_to_do)
        return None
    log.info("health_served", url=server.url, address=server.address)
    return server


def is_required(settings: Settings) -> bool:
    """Whether an app must not run without its server: as told, else if somebody told the port, who will look there."""
    told = settings.health.required
    return "health.port" in settings.origins if told is None else told


def behind_door(settings: Settings, door: Path) -> Settings:
    """For a child of a supervisor: it serves through the file system, and its parent serves for all."""
    return replace(settings, health=replace(settings.health, host=f"{UNIX}{door}", required=False))
