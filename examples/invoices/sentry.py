"""Where reports to Sentry go: to its server, or to a file for tests and the story."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.transport import Transport

TEST_DSN = "https://key@sentry.invalid/1"


class FileTransport(Transport):
    """A transport that appends each event to a file, as a line of JSON, and sends nothing anywhere."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(event, default=str) + "\n")


def init_sentry(environ: Mapping[str, str]) -> None:
    """SENTRY_DSN says where to, or SENTRY_FILE: reports are written to that file. Without either, Sentry is off."""
    options = dict[str, Any]()
    if path := environ.get("SENTRY_FILE"):
        options = {"dsn": TEST_DSN, "transport": FileTransport(Path(path))}
        # Sentry imports every library that it knows and finds; in a test environment these are many.
        options["auto_enabling_integrations"] = False
    elif not environ.get("SENTRY_DSN"):
        return
    sentry_sdk.init(include_local_variables=False, **options)  # local variables hold what was in the record
    ignore_logger("keepfast.*")  # or each letter is reported again, as a line of the log
