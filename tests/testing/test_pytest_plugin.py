"""The pytest plugin, as somebody else's project uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast.testing import KafkaBroker

THEIR_TESTS = """
def test_a_topic_is_there(kafka, topic):
    one, two = topic(partitions=4), topic(suffix=".dlq")
    topics = kafka.admin.list_topics(timeout=60).topics
    assert len(topics[one].partitions) == 4
    assert one.startswith("test_a_topic_is_there") and two.endswith(".dlq") and two in topics
"""
CHEAP = """
import sys
import keepfast.testing.pytest_plugin, keepfast.testing
sys.exit("confluent_kafka" in sys.modules)
"""


def run_pytest(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_theirs.py").write_text(THEIR_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "keepfast.testing.pytest_plugin", "-p", "no:cacheprovider"]
    # The plugin is named above; with its entry point too it would be registered twice.
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", **environment}
    return subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.long
def test_the_fixtures_start_a_broker_when_asked(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, KEEPFAST_TEST_BOOTSTRAP="")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_fixtures_take_an_existing_broker_and_leave_it_clean(tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        done = run_pytest(tmp_path, KEEPFAST_TEST_BOOTSTRAP=broker.bootstrap)
        assert "1 passed" in done.stdout, done.stdout + done.stderr
        assert broker.admin.list_topics(timeout=60).topics == {}


def test_importing_the_plugin_loads_no_client() -> None:
    assert subprocess.run([sys.executable, "-c", CHEAP], check=False).returncode == 0
