"""Where the documents contradict each other, or one of our decisions does: overruled, with the number of the record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import RetryPolicy
from holdfast.audit import CLAUSES, examine
from holdfast.audit.clause import DOCUMENTS
from holdfast.audit.decisions import CHOSEN_BY_NAME, OVERRULING
from holdfast.core.policies import DeadLetterPolicy
from holdfast.core.sensitive import CardNumbers
from tests.audit.stage import subject
from tests.project.files import ROOT

FOR_EVER = {"options": {"retry": RetryPolicy(max_retries=None)}}
EVERYTHING = {"options": {"retry": RetryPolicy(max_retries=None), "rules": {Exception: "retryable"}}}
DECODING = {"options": {"rules": {"holdfast.core.errors.DecodeError": "discard"}}}
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
    ("standard:5.2.1", 7, {}),
    ("pattern:docker.1", 8, {}),
    ("pattern:letters.3", 22, {}),
    ("pattern:missing.1", 23, {}),
    ("fraud:decision.2", CHOSEN_BY_NAME, {}),
    ("fraud:errors.5", 3, {}),
    ("spring:rebalance", 7, {"options": {"assignor": "range"}}),
]
PASSED: list[tuple[str, Mapping[str, Any]]] = [
    ("standard:1.1.2.5", EVERYTHING),
    ("standard:1.2.3.1", {"environ": {"HOLDFAST_RATE_MIN_DELAY_MS": "12000"}}),
    ("standard:1.3.2.4", {"options": {"retry": RetryPolicy(jitter=False)}}),
    ("standard:2.1.1", {"options": {"rules": {"holdfast.core.errors.Discard": "discard"}}}),
    ("standard:5.2.1", {"options": {"assignor": "range"}}),
    ("standard:9.1.1", {"options": {"retry": "financial"}}),
    ("standard:9.1.1", FOR_EVER),
    ("fraud:decision.1", {"options": {"dead_letter": "{topic}.dlq.{env}"}}),
    ("fraud:decision.2", {"options": {"group": "card-fraud-transaction-management.{env}"}}),
    ("fraud:envelope", {"options": {"dead_letter": DeadLetterPolicy(format="nested")}}),
    ("fraud:errors.3", {"options": {"sensitive": CardNumbers()}}),
    ("fraud:errors.5", {"options": {"unknown_errors": "dead-letter"}}),
    ("spring:dlt.1", {"options": {"dead_letter": "{topic}.DLT"}}),
    ("spring:dlt.2", {"options": {"dead_letter": DeadLetterPolicy(format="headers")}}),
    ("pattern:missing.1", {"options": {"breaker": True}}),
    ("pattern:letters.3", {"settings": {"spool": "file:///var/spool/shop"}}),
    ("standard:5.1.4", {"options": {"group": "g.{env}"}, "files": {"README.md": "Our group is g.{env}."}}),
]
NOT_APPLICABLE: list[tuple[str, Mapping[str, Any]]] = [
    ("standard:1.2.3.1", {}),
    ("standard:2.1.3", {"options": {"timeout_s": None}}),
    ("standard:3.1.1", {"options": {"group_protocol": "consumer"}}),
    ("standard:5.2.1", {"options": {"group_protocol": "consumer"}}),
    ("pattern:docker.2", {"files": {"Dockerfile": None}}),
    ("fraud:errors.3", {}),
]
RULES = {clause.id: clause for clause in CLAUSES}


def look(rule: str, folder: Path, difference: Mapping[str, Any]) -> tuple[str, int | None]:
    [result] = examine(subject(folder, **difference), clauses=[RULES[rule]])
    return result.status, result.findings[0].decision


@pytest.mark.parametrize(("rule", "decision", "difference"), OVERRULED)
def test_it_is_overruled_by_a_decision(rule: str, decision: int, difference: Mapping[str, Any], tmp_path: Path) -> None:
    assert look(rule, tmp_path, difference) == ("overruled", decision)


@pytest.mark.parametrize(("rule", "difference"), PASSED)
def test_it_is_passed_by_whoever_does_as_it_says(rule: str, difference: Mapping[str, Any], tmp_path: Path) -> None:
    assert look(rule, tmp_path, difference) == ("passed", None)


@pytest.mark.parametrize(("rule", "difference"), NOT_APPLICABLE)
def test_it_is_not_applicable(rule: str, difference: Mapping[str, Any], tmp_path: Path) -> None:
    assert look(rule, tmp_path, difference) == ("not applicable", None)


def test_every_decision_that_overrules_has_a_record_and_a_case_here() -> None:
    assert {decision for _, decision, _ in OVERRULED} == OVERRULING
    for number in OVERRULING:
        [record] = (ROOT / "docs" / "decisions").glob(f"{number:04}-*.md")
        assert "\nStatus: holds" in record.read_text()
    assert "check" in next((ROOT / "docs" / "decisions").glob(f"{CHOSEN_BY_NAME:04}-*.md")).name


def test_the_documents_are_those_of_the_decisions() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    assert [name for name in DOCUMENTS.values() if f"**{name}**" not in index] == []
