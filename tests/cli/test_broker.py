"""`keepfast broker`, as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from keepfast.cli.broker import TopicSpec, broker
from keepfast.testing import ExistingBroker
from tests.support.waiting import DEADLINE_S

COMMAND = [sys.executable, "-c", "from keepfast.cli.broker import broker; broker()"]


def run_until_signal(number: signal.Signals, *options: str) -> tuple[str, set[str], str, int]:
    """Its first line, the topics there, what it said on standard error, and its exit code."""
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        topics = set(ExistingBroker(address).admin.list_topics(timeout=DEADLINE_S).topics)
        process.send_signal(number)
        rest, hints = process.communicate(timeout=DEADLINE_S)
    assert rest == ""
    return address, topics, hints, process.returncode


def test_it_prints_its_address_makes_topics_and_ends_cleanly(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "kept")]
    address, topics, hints, code = run_until_signal(signal.SIGTERM, "--topic", "orders:3", "--topic", "other", *data)
    assert address.startswith("127.0.0.1:")
    assert topics == {"orders", "other"}
    assert "the data stays" in hints
    assert code == 0
    _, topics, _, code = run_until_signal(signal.SIGINT, "--topic", "orders:3", *data)
    assert (topics, code) == ({"orders", "other"}, 0)


def test_the_embedded_one_says_its_limits_and_makes_topics() -> None:
    address, topics, hints, code = run_until_signal(signal.SIGINT, "--embedded", "--topic", "orders")
    assert "Topics are created by `--topic NAME` of this command, by `keepfast dev`" in hints
    assert address.startswith("127.0.0.1:")
    assert topics == {"orders"}
    assert "4 partitions" in hints
    assert code == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--topic", "a:0"],
        ["--topic", ":3"],
        ["--topic", "a:x"],
        ["--nodes", "2"],
        ["--port", "0"],
        ["--embedded", "--port", "9"],
    ],
)
def test_wrong_options_are_usage_errors(options: list[str]) -> None:
    result = CliRunner().invoke(broker, options)
    assert result.exit_code == 2


@pytest.mark.parametrize("name", ["a b", "orders/payment", "..", "a" * 250, "zahlung-ü:3"])
def test_a_topic_name_that_kafka_does_not_allow_is_refused(name: str) -> None:
    with pytest.raises(click.BadParameter, match="topic name"):
        TopicSpec().convert(name, None, None)
