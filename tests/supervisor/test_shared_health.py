"""The supervisor's page of metrics: what its children have, and nothing of one that is dead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser

from keepfast.http.local_app import LocalApp
from keepfast.http.pages import Pages
from keepfast.http.server import HttpRequest, Server
from keepfast.supervisor.shared_health import Children, ChildSockets

read: Any = parser.text_string_to_metric_families


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Two children; the second has died and left its socket behind."""
    first, second = (Server(Pages(LocalApp("shop"))) for _ in range(2))
    first.start(f"unix:{tmp_path}/0.sock", 0)
    second.start(f"unix:{tmp_path}/1.sock", 0)
    second.stop()
    (tmp_path / "1.sock").touch()
    yield tmp_path
    first.stop()


def test_a_dead_child_has_no_series_but_that_it_is_down(folder: Path) -> None:
    pages = Pages(Children(ChildSockets(folder, 2), app="shop"))
    for _ in range(2):  # asking changes nothing
        found: dict[str, dict[str, float]] = {}
        for family in read(pages(HttpRequest("GET", "/metrics")).body.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, {})[sample.labels["process"]] = sample.value
        assert found["keepfast_process_up"] == {"0": 1, "1": 0}
        assert set(found["keepfast_app_info"]) == {"0"}
        assert set(found["process_resident_memory_bytes"]) == {"0", "supervisor"}
        assert set(found["python_info"]) == {"0", "supervisor"}
