"""The server of an app that runs inside the test's process, and a client for it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.openmetrics import parser

from keepfast.desk import UnresolvedCounter
from keepfast.http.local_app import AppServer
from tests.support.running_app import RunningApp
from tests.support.waiting import DEADLINE_S

OPEN_METRICS = {"Accept": "application/openmetrics-text;version=1.0.0"}
read_open_metrics: Any = parser.text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Got:
    """An answer."""

    status: int
    body: bytes
    kind: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def codes(self) -> set[str]:
        """Of the reasons that a health page gives."""
        return {reason["code"] for reason in self.json["reasons"]}


@dataclass(frozen=True, slots=True)
class Web:
    """A client of a server."""

    url: str
    token: str = ""

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Got:
        return self._ask("GET", path, None, headers or {})

    def post(self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Got:
        given = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return self._ask("POST", path, json.dumps(body or {}).encode(), {**given, **(headers or {})})

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Got:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            return Got(answer.status, answer.read(), answer.headers["Content-Type"])
        finally:
            connection.close()

    def samples(self) -> dict[str, dict[Labels, Any]]:
        """All series of /metrics, by name and labels, as the strict parser reads them."""
        found: dict[str, dict[Labels, Any]] = {}
        for family in read_open_metrics(self.get("/metrics", OPEN_METRICS).body.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample
        return found


@contextmanager
def web_of(running: RunningApp, *, token: str = "", counts: bool = False) -> Iterator[Web]:
    """Serve an app that runs inside the test, on any free port. `counts`: also its unresolved dead letters."""
    settings = running.app.settings(
        environ={"HEALTH_CHECK_PORT": "0", **({"KEEPFAST_CONTROL_TOKEN": token} if token else {})},
        cwd=Path("/nonexistent"),
    )
    with AppServer(settings) as serving:
        assert running._assembled is not None
        connection = running._assembled.letters_connection if counts else None
        if connection is None:
            serving.attach(running._assembled)
            yield Web(serving.url, token)
            return
        counter = UnresolvedCounter.of(running._assembled.threads, connection, settings)
        serving.attach(running._assembled, more=counter.families)
        counter.start()
        try:
            yield Web(serving.url, token)
        finally:
            counter.stop(10.0)
