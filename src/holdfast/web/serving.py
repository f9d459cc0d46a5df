"""An app with its server around it: health answers from before the brokers are found until the process ends."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from holdfast.core.errors import ConfigError
from holdfast.observe.families import Collision
from holdfast.observe.logs import get_logger
from holdfast.settings import Settings
from holdfast.web.http import Server
from holdfast.web.pages import OneApp, Pages, Subject
from holdfast.web.running import Parts, Running

log = get_logger("holdfast.web")


class Serving:
    """Use it as a context manager around the assembly and the run of an app; off by `health.enabled`.

    Entering raises ConfigError if the port is taken and that matters (`health.required`).
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server: Server | None = None
        self.running = Running(
            app=settings.app.name,
            version=settings.app.version,
            shutdown_timeout_s=settings.shutdown.timeout_s,
        )

    @property
    def url(self) -> str:
        """Where it is served; empty if it is not."""
        return self._server.url if self._server else ""

    def __enter__(self) -> Self:
        self._server = served(OneApp(self.running), self._settings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()

    def show(self, parts: Parts) -> None:
        """The app is put together. Raises ConfigError if two of its metrics would have one name."""
        try:
            self.running.show(parts)
        except Collision as error:
            raise ConfigError(f"Metrics: {error}.") from error


def served(subject: Subject, settings: Settings) -> Server | None:
    """A server that answers already; None if it is switched off, or cannot be had and need not be."""
    health, token = settings.health, settings.control.token
    if not health.enabled:
        return None
    server = Server(Pages(subject, token=token.reveal() if token else None))
    try:
        server.start(health.host, health.port)
    except OSError as error:
        required = "health.port" in settings.origins if health.required is None else health.required
        where = f"{health.host}:{health.port}"
        text = f"Health and metrics cannot be served on {where}: {error.strerror or error}."
        if required:
            raise ConfigError(
                f"{text} Set HEALTH_CHECK_PORT to another port (0: any free one), or HEALTH_CHECK_ENABLED=false."
            ) from error
        log.warning(
            "health_not_served",
            address=where,
            error=str(error.strerror or error),
            what_to_do="set HEALTH_CHECK_PORT to another port (0: any free one), or HEALTH_CHECK_ENABLED=false",
        )
        return None
    log.info("health_served", url=server.url)
    return server
