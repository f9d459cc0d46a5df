"""The spool of an app, if it has one."""

from __future__ import annotations

from keepfast.core.errors import SpoolError, StartError
from keepfast.core.ports import Sink
from keepfast.deadletters.spool.places import doubts_about, shown, store_at
from keepfast.deadletters.spool.service import SpoolService
from keepfast.engine.clock import RealClock
from keepfast.settings import Settings
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.start")


def open_spool(settings: Settings, sink: Sink) -> SpoolService | None:
    """Ready to take letters and already sending on what it holds; None if no place is configured.

    Raises ConfigError, and StartError when the place cannot be written to.
    """
    if settings.spool.url is None:
        return None
    url, app = settings.spool.url.reveal(), settings.app.name
    service = SpoolService(store_at(url, app=app, max_bytes=settings.spool.max_bytes), sink, RealClock())
    doubts = doubts_about(url, app)
    if doubts:
        log.warning("spool_may_be_lost", spool=shown(url), why=doubts)
    try:
        service.open()
    except SpoolError as error:
        raise StartError(str(error)) from error
    log.info("spool_ready", spool=shown(url), letters=service.status.fill.letters)
    return service
