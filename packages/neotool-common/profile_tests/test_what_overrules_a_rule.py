"""Where the documents contradict each other, or one of our decisions does: overruled, with the number of the record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from neotool_common.profiles import PROFILES
from neotool_common.profiles import RULES as ALL
from neotool_common.profiles.decisions import CHOSEN_BY_NAME, OVERRULING
from profile_tests.test_every_rule_can_be_violated import NEVER_BROKEN, NOT_SEEN

from keepfast import RetryPolicy
from keepfast.audit import examine
from keepfast.audit.report import summary
from keepfast.core.errors import ConfigError
from keepfast.core.policies import DeadLetterPolicy
from keepfast.redact.sensitive import CardNumbers
from tests.support.audited import DOCKERFILE, raw, result_of, subject
from tests.support.project_files import ROOT

FOR_EVER = {"options": {"retry": RetryPolicy(max_retries=None)}}
EVERYTHING = {"options": {"retry": RetryPolicy(max_retries=None), "rules": {Exception: "retryable"}}}
RATED = {"environ": {"KEEPFAST_RATE_MIN_DELAY_MS": "12000"}}
BY_NAME = DOCKERFILE.replace("USER 1000:1000", "RUN adduser -D -u 1000 consumer\nUSER consumer")
DECODING = {"options": {"rules": {"keepfast.core.errors.DecodeError": "discard"}}}
OVERRULED: list[tuple[str, int, Mapping[str, Any]]] = [
    ("standard:1.1.2.4", 4, {"options": {"rules": {"sqlstate:23505": "retryable"}}}),
    ("standard:1.1.2.5", CHOSEN_BY_NAME, DECODING),
    ("standard:2.1.1", CHOSEN_BY_NAME, DECODING),
    ("standard:1.1.2.1", CHOSEN_BY_NAME, EVERYTHING),
    ("standard:1.2.2.2", 9, FOR_EVER),
    ("standard:1.3.1.1", 9, FOR_EVER),
    ("standard:1.3.1.5", 9, FOR_EVER),
    ("standard:2.1.2", 23, {"options": {"breaker": True}}),
    ("standard:1.3.2.4", 5, {}),
    ("standard:2.2", CHOSEN_BY_NAME, {"options": {"dead_letter": DeadLetterPolicy(format="headers")}}),
    ("standard:2.3.2", 22, {"settings": {"spool": "file:///var/spool/shop"}}),
    ("standard:2.4", CHOSEN_BY_NAME, {"options": {"dead_letter": "{topic}.DLT"}}),
    ("standard:2.4", CHOSEN_BY_NAME, {"options": {"dead_letter": "{topic}.dlq.{env}"}}),
    ("standard:3.1.3", 6, {"options": {"session_timeout_ms": 30_000}}),
    ("standard:3.1.5", 9, {"options": {"retry": RetryPolicy(max_retries=50)}}),
    ("standard:5.1.3", CHOSEN_BY_NAME, {"options": {"group": "cg-deal-events"}}),
    ("standard:5.2.1", 7, {"options": {"group_protocol": "classic"}}),
    ("pattern:docker.1", 8, {}),
    ("pattern:docker.7", 8, {}),
    ("pattern:letters.2", CHOSEN_BY_NAME, {"options": {"dead_letter": DeadLetterPolicy(format="nested")}}),
    ("pattern:limits.5", 22, {}),
    ("pattern:high.1", 22, {}),
    ("pattern:limits.6", 23, {}),
    ("pattern:medium.1", 23, {}),
    ("pattern:package.3", 26, {}),
    ("pattern:practice.5", CHOSEN_BY_NAME, {"handler": raw}),
    ("pattern:package.7", 26, {"files": {"pytest.ini": "[pytest]\npythonpath = src\n"}}),
    ("pattern:pitfalls.3", 9, FOR_EVER),
    ("pattern:polling.3", 9, {"options": {"retry": RetryPolicy(max_retries=50)}}),
    ("pattern:python.6", 23, RATED),
    ("standard:4.1.3", 22, {"settings": {"spool": "file:///var/spool/shop"}}),
    ("fraud:alternatives.3", 9, FOR_EVER),
    ("fraud:decision.1", CHOSEN_BY_NAME, {"topic": "deal.events"}),
    ("fraud:decision.3", CHOSEN_BY_NAME, {}),
    ("fraud:envelope", CHOSEN_BY_NAME, {}),
    ("spring:dlt.2", CHOSEN_BY_NAME, {}),
    ("spring:groups.3", CHOSEN_BY_NAME, {}),
    ("fraud:errors.5", 3, {}),
    ("spring:retry.1", CHOSEN_BY_NAME, {"environ": {"RETRY_MAX_RETRIES": "7"}}),
    ("spring:rebalance", 7, {"options": {"assignor": "range"}}),
]
PASSED: list[tuple[str, Mapping[str, Any]]] = [
    ("spring:retry.1", {}),
    ("spring:retry.2", {"options": {"retry": "financial"}}),
    ("spring:retry.4", {"environ": {"KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES": "0"}}),
    ("standard:1.1.2.5", EVERYTHING),
    ("standard:1.2.3.1", RATED),
    ("standard:1.2.3.2", RATED),
    ("standard:1.3.2.3", RATED),
    ("standard:9.1.3", RATED),
    ("pattern:python.2", RATED),
    ("pattern:python.6", {**RATED, "options": {"max_poll_records": 1}}),
    ("standard:1.3.1.1", {}),
    ("standard:3.1.3", {"options": {"group_protocol": "classic"}}),
    ("standard:3.1.5", {}),
    ("standard:3.2.3", {}),
    ("standard:4.2.3", {"options": {"commit": "interval"}}),
    ("standard:1.3.2.4", {"options": {"retry": RetryPolicy(jitter=False)}}),
    ("standard:2.1.1", {"options": {"rules": {"keepfast.core.errors.Discard": "discard"}}}),
    ("standard:5.2.1", {"options": {"assignor": "range"}}),
    ("standard:9.1.1", {"options": {"retry": "financial"}}),
    ("standard:9.1.1", FOR_EVER),
    ("fraud:decision.1", {}),
    ("fraud:decision.2", {"options": {"dead_letter": "{topic}.dlq.{env}"}}),
    ("fraud:decision.3", {"options": {"group": "card-fraud-transaction-management.{env}"}}),
    ("fraud:envelope", {"options": {"dead_letter": DeadLetterPolicy(format="nested")}}),
    ("fraud:errors.3", {"options": {"sensitive": CardNumbers()}}),
    ("fraud:errors.5", {"options": {"unknown_errors": "dead-letter"}}),
    ("spring:dlt.1", {"options": {"dead_letter": "{topic}.DLT"}}),
    ("spring:dlt.2", {"options": {"dead_letter": DeadLetterPolicy(format="headers")}}),
    ("spring:groups.3", {"options": {"group": "cg-deal-events"}}),
    ("pattern:limits.6", {"options": {"breaker": True}}),
    ("pattern:limits.5", {"settings": {"spool": "file:///var/spool/shop"}}),
    ("pattern:package.3", {"files": {"src/shop/flows/consumer.py": "", "src/shop/tasks/message.py": ""}}),
    ("pattern:package.7", {}),
    ("pattern:docker.1", {"files": {"Dockerfile": DOCKERFILE.replace("slim", "alpine")}}),
    ("pattern:docker.7", {"files": {"Dockerfile": DOCKERFILE.replace("slim", "alpine")}}),
    ("pattern:security.1", {"files": {"Dockerfile": BY_NAME}}),
    ("standard:5.1.4", {"options": {"group": "g.{env}"}, "files": {"README.md": "Our group is g.{env}."}}),
]
NOT_APPLICABLE: list[tuple[str, Mapping[str, Any]]] = [
    ("standard:1.2.3.1", {}),
    ("standard:2.1.3", {"options": {"timeout_s": None}}),
    *(
        (rule, {})
        for rule in ("standard:3.1.1", "standard:3.1.2", "standard:3.1.3", "standard:3.1.6", "standard:5.2.1")
    ),
    ("standard:3.1.1", {"options": {"group_protocol": "consumer"}}),
    ("standard:5.2.1", {"options": {"group_protocol": "consumer"}}),
    ("pattern:docker.2", {"files": {"Dockerfile": None}}),
    ("pattern:package.2", {"files": {"Dockerfile": None}}),
    ("pattern:compose.1", {"files": {"Dockerfile": None}}),
    ("pattern:python.6", {}),
    ("fraud:errors.3", {}),
]
NOT_CHECKABLE = (
    *("standard:5.2.6", "standard:9.2.4", "standard:9.4.3", "standard:10.1", "standard:10.2"),
    *("pattern:docker.11", "pattern:low.2", "pattern:throughput.4"),
    *NOT_SEEN,
)
RULES = {rule.id: rule for rule in ALL}


def look(rule: str, folder: Path, difference: Mapping[str, Any]) -> tuple[str, int | None]:
    result = result_of(subject(folder, **difference), RULES[rule])
    return result.status, result.findings[0].decision


@pytest.mark.parametrize(("rule", "decision", "difference"), OVERRULED)
def test_it_is_overruled_by_a_decision(rule: str, decision: int, difference: Mapping[str, Any], tmp_path: Path) -> None:
    assert look(rule, tmp_path, difference) == ("overruled", decision)


@pytest.mark.parametrize(("rule", "difference"), PASSED)
def test_it_is_passed_by_an_app_that_follows_the_remedy(
    rule: str, difference: Mapping[str, Any], tmp_path: Path
) -> None:
    assert look(rule, tmp_path, difference) == ("passed", None)


@pytest.mark.parametrize(("rule", "difference"), NOT_APPLICABLE)
def test_it_is_not_applicable(rule: str, difference: Mapping[str, Any], tmp_path: Path) -> None:
    assert look(rule, tmp_path, difference) == ("not applicable", None)


@pytest.mark.parametrize("rule", NOT_CHECKABLE)
def test_what_only_our_repository_has_is_not_checkable(rule: str, tmp_path: Path) -> None:
    assert look(rule, tmp_path, {}) == ("not checkable", None)


def test_the_summary_names_the_decisions_that_overrule_and_counts_what_was_tried(tmp_path: Path) -> None:
    results = examine(subject(tmp_path), PROFILES)
    text, tried = summary(results), sum(one.rule.is_tried and one.status == "passed" for one in results)
    assert tried > 10
    assert f" passed ({tried} by trial)" in text
    assert re.search(r"\d+ overruled by a decision \(00\d\d(, 00\d\d)*\)", text), text
    assert re.search(r"\d+ not checkable here", text), text


def test_a_record_of_the_apps_own_overrules_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    name = "docs/decisions/0004-no-timeouts.md"
    text = "# 4. No time-outs\n\n**Overrules:** standard:9.3.3, `pattern:high.5`.\n"
    app = subject(tmp_path, options={"timeout_s": None, "idempotent": False}, files={name: text})
    results = {one.rule.id: one for one in examine(app, PROFILES)}
    overruled = results["standard:9.3.3"].findings[0]
    assert (overruled.status, overruled.decision, overruled.record, overruled.fix) == ("overruled", 4, name, "")
    assert "has no time limit" in overruled.reason
    assert (results["pattern:high.5"].status, results["loop:4"].status) == ("overruled", "failed")
    good = subject(tmp_path, files={name: text})
    assert result_of(good, RULES["standard:9.3.3"]).status == "passed", "it is kept all the same"


def test_a_record_that_names_no_rule_is_a_problem(tmp_path: Path) -> None:
    app = subject(tmp_path, files={"docs/adr/never.md": "Overrules: standard:99.1"})
    with pytest.raises(ConfigError, match=r"docs/adr/never\.md overrules 'standard:99\.1', which is not a rule"):
        examine(app, PROFILES)


def test_every_rule_that_no_app_breaks_has_a_case_here() -> None:
    cases = {rule for rule, *_ in (*OVERRULED, *PASSED, *NOT_APPLICABLE)} | set(NOT_CHECKABLE)
    assert NEVER_BROKEN - cases == set()


def test_every_decision_that_overrules_has_a_record_and_a_case_here() -> None:
    assert {decision for _, decision, _ in OVERRULED} == OVERRULING
    for number in OVERRULING:
        [record] = (ROOT / "docs" / "decisions").glob(f"{number:04}-*.md")
        assert "\nStatus: holds" in record.read_text()
    assert "check" in next((ROOT / "docs" / "decisions").glob(f"{CHOSEN_BY_NAME:04}-*.md")).name


def test_the_documents_are_those_of_the_decisions() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    assert [name for name in (profile.title for profile in PROFILES) if f"**{name}**" not in index] == []
