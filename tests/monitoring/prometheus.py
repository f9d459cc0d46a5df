"""A real Prometheus for a test, and its questions."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepfast.testing.loopback import free_ports
from tests.support.waiting import DEADLINE_S, wait_until

MISSING = "is not on the PATH: apt install prometheus, or run `make test`, which leaves these tests out"


def program(name: str) -> str:
    """Where it is; no test of these passes without."""
    found = shutil.which(name)
    assert found, f"{name} {MISSING}"
    return found


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, query: str) -> list[Any]:
        return list(self.ask("query", query=query)["result"])

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


@contextmanager
def prometheus(folder: Path, *, target: str, rules: Path) -> Iterator[Prometheus]:
    """Scrapes `host:port` once a second, and evaluates the rules as often."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "app", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # all JSON is YAML
    [port] = free_ports(1)
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        found = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(found.is_ready, "Prometheus is ready")
        yield found
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
