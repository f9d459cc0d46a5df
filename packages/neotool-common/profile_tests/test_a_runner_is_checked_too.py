"""`KafkaConsumerRunner` before the rules: what its hooks do in place of keepfast, and what nobody can see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neotool_common.profiles import PROFILES

from keepfast.audit import Result, Subject, examine
from keepfast.runner import KafkaConsumerRunner
from tests.support.audited import FILES


def process(message: Any) -> None:
    """The user's work."""


def results(folder: Path, **options: Any) -> dict[str, Result]:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    runner = KafkaConsumerRunner(
        consumer_factory=lambda: {"bootstrap.servers": "nowhere:1", "group.id": "shop.charge"},
        topics="orders.payment.v1",
        **{"process_message": process, **options},
    )
    subject = Subject.of(runner, cwd=folder, folder=folder, environ={})
    return {one.rule.id: one for one in examine(subject, PROFILES)}


def test_a_runner_that_leaves_everything_to_keepfast_is_held_to_what_an_app_is(tmp_path: Path) -> None:
    found = results(tmp_path, message_factory=dict, settings={"consumer": {"idempotent": True, "timeout_s": 10}})
    assert [one.rule.id for one in found.values() if one.status == "failed"] == []
    assert found["standard:2.4"].status == found["standard:6.1.1"].status == "passed"


def test_what_a_runner_leaves_out_is_found(tmp_path: Path) -> None:
    found = results(tmp_path, settings={"consumer": {"auto_offset_reset": "error"}})
    reasons = {one.findings[0].reason for one in found.values() if one.status == "failed"}
    assert "The handler takes unvalidated values." in reasons
    assert any("auto_offset_reset is error" in reason for reason in reasons)
    assert any("after a crash records are delivered again" in reason for reason in reasons)


def test_errors_of_hooks_are_reported_as_theirs(tmp_path: Path) -> None:
    hooks = {
        "dlq_publisher": lambda message, error, retry_count: None,
        "rate_limit_min_delay_ms": lambda: 12_000,
        "health_server_start": lambda: None,
    }
    found = results(tmp_path, **hooks)
    assert found["standard:2.4"].status == "not applicable"
    assert "dlq_publisher" in found["standard:2.4"].findings[0].reason
    assert found["standard:2.3.4"].status == "not applicable", "nobody but the hook knows the topic"
    letters = (
        "pattern:design.4",
        "pattern:python.9",
        "spring:reprocessing.2",
        "spring:reprocessing.4",
        "fraud:consequences.3",
    )
    health = ("pattern:health.2", "pattern:python.10", "pattern:indicators.3")
    assert {found[rule].status for rule in (*letters, *health)} == {"not applicable"}, "keepfast does not write them"
    assert found["standard:6.1.3"].status == "passed", "on a port of its own"
    elsewhere = results(tmp_path, **hooks, settings={"metrics": {"port": None}})["standard:6.1.3"]
    assert elsewhere.status == "not applicable"
    assert "runner.metrics()" in elsewhere.findings[0].reason
    assert (found["standard:1.2.3.1"].status, found["pattern:health.1"].status) == ("passed", "passed")
