"""One server for all children of a supervisor."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from keepfast.http.http import Server
from keepfast.http.pages import Pages
from keepfast.http.serving import served
from keepfast.settings import HealthSettings
from keepfast.supervisor.children import Children, Doors
from keepfast.supervisor.process import Place
from keepfast.supervisor.tether import Report


class ForAll:
    """Use it as a context manager around the supervisor's run. Owner: the main thread."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._folder: TemporaryDirectory[str] | None = None
        self._server: Server | None = None
        self._begun = False

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="keepfast-", ignore_cleanup_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def door(self, place: Place) -> Path:
        return self._doors.of(place.index)

    def begin(self, report: Report) -> None:
        """A child has told where to serve; the first word counts. Raises ConfigError if that cannot be and must."""
        if self._begun or report.health is None:
            return
        self._begun = True
        host, port = report.health
        pages = Pages(Children(self._doors, app=report.app), passes_on=True)
        settings = HealthSettings(enabled=True, host=host, port=port)
        self._server = served(pages, settings, required=report.health_required)

    @property
    def _doors(self) -> Doors:
        if self._folder is None:
            raise RuntimeError("ForAll needs the context manager to be entered first.")
        return Doors(Path(self._folder.name), self._processes)
