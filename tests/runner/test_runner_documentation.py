"""The code in docs/runner.md can be pasted: it runs, and its consumer is one that the runner takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from keepfast.runner import KafkaConsumerRunner
from keepfast.runner.clients import consumer_tree

PAGE = Path(__file__).parents[2] / "docs" / "runner.md"


def test_the_example_makes_a_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BROKERS", "kafka:9092")
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    made: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs/runner.md", "exec", dont_inherit=True), made)
    assert isinstance(made["runner"], KafkaConsumerRunner)
    assert made["process_message"](made["Institution"]("1", ""))["success"] is False
    tree = consumer_tree(made["create_consumer"]())
    assert tree == {"kafka": {"brokers": "kafka:9092"}, "consumer": {"group": "institutions.v1"}}
