"""The table is whole: every rule of the documents, each with code that keeps it and tests that exist."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest
from neotool_common.profiles import PROFILES, RULES
from neotool_common.profiles.hooks import REPLACED
from profile_tests.evidence import Evidence, by, path_of
from profile_tests.rules import KEPT_BY
from profile_tests.second_reading import FAILED_BEFORE, TAKEN_BACK

from keepfast.audit.profile import installed_profiles
from tests.support.project_files import ROOT, SOURCES

COUNTED = {
    "standard": """
1.1.1:6 1.1.2:6 1.1.3:4 1.2.1:5 1.2.2:2 1.2.3:3 1.3.1:7 1.3.2:4 1.4:4 2.1:5 2:2 2.3:4 3.1:6 3.2:5 4.1:4 4.2:4 5.1:4
5.2:6 6.1:6 6.2:5 7.1:5 8.1:5 8.2:4 9.1:5 9.2:4 9.3:4 9.4:4 10:6
""",
    "loop": ":16",
    "pattern": """
design:5 package:7 components:7 runner:5 config:10 docker:11 compose:4 health:3 security:5 build:4 retry:7 letters:2
practice:8 python:10 shutdown:9 polling:3 poison:5 watch:5 metrics:5 unit:5 integration:4 limits:6 pitfalls:14 high:5
medium:4 low:3 runbook:5 throughput:5 latency:3 constrained:3 checklist:5 alerts:7 indicators:3
""",
    "fraud": "context:4 decision:4 consumer:3 :2 consequences:5 errors:5 monitoring:5 alternatives:4",
    "spring": "groups:3 retry:5 dlt:2 poison:3 commit:5 lag:6 :1 reprocessing:4",
}
"""Section: how many rules the document has there, counted by hand, those of Kotlin and the JVM left out. A section that
is one rule stands under the one above it: §2.2 and §2.4 under §2.
"""


@cache
def names_in(file: str) -> frozenset[str]:
    path = ROOT / path_of(file)
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text()).body
    return frozenset(one.name for one in body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("document", COUNTED)
def test_a_document_is_there_section_by_section(document: str) -> None:
    places = [rule.place for rule in RULES if rule.profile == document]
    assert Counter(place.rpartition(".")[0] for place in places) == {
        section: int(count) for section, _, count in (part.partition(":") for part in COUNTED[document].split())
    }


def test_no_two_rules_have_one_name_and_all_documents_are_known() -> None:
    assert [name for name, count in Counter(one.id for one in RULES).items() if count > 1] == []
    assert list(dict.fromkeys(one.profile for one in RULES)) == [profile.name for profile in PROFILES] == list(COUNTED)
    assert list(installed_profiles().values()) == sorted(PROFILES, key=lambda profile: profile.name)


def wrong_with(rule: str, evidence: Evidence) -> list[str]:
    code, tests = evidence.code, evidence.tests
    found = [] if (SOURCES / code).is_file() else [f"{rule}: there is no {code}"]
    found += [] if tests else [f"{rule}: no test keeps it"]
    missing = [test for test in tests if test.partition("::")[2] not in names_in(test.partition("::")[0])]
    return found + [f"{rule}: there is no {test}" for test in missing]


def test_every_rule_is_kept_by_code_and_by_tests_that_exist() -> None:
    assert list(KEPT_BY) == [rule.id for rule in RULES]
    assert [problem for rule, evidence in KEPT_BY.items() for problem in wrong_with(rule, evidence)] == []


def test_what_the_second_reading_found_has_tests_that_exist() -> None:
    rules = {rule.id for rule in RULES}
    assert [rule for rule in FAILED_BEFORE if rule not in rules] == []
    assert [rule for rule in TAKEN_BACK if rule not in FAILED_BEFORE] == []
    found = [by("core/judge.py", *tests) for tests in FAILED_BEFORE.values()]
    assert [problem for evidence in found for problem in wrong_with("", evidence)] == []


def test_hooks_stand_in_for_rules_that_keepfast_keeps_otherwise() -> None:
    kept = {rule.id for rule in RULES if rule.check is None}
    assert [rule for _, rules in REPLACED.values() for rule in rules if rule not in kept] == []


def test_what_is_written_into_a_project_or_tested_here_is_not_called_kept() -> None:
    """Code that an app does not run: templates, the shim, our own tests."""
    kept = {rule.id for rule in RULES if rule.check is None}
    assert [rule for rule in kept if KEPT_BY[rule].code.startswith("scaffold/")] == []
    assert [rule.id for rule in RULES if rule.id in kept and rule.text.endswith("tested.")] == []


@pytest.mark.parametrize(
    "evidence",
    [
        by("core/nowhere.py", "core/test_judge.py::test_for_ever_means_for_ever_every_three_seconds"),
        by("core/judge.py"),
        by("core/judge.py", "core/test_judge.py::test_nothing"),
        by("core/judge.py", "core/test_nowhere.py::test_it"),
    ],
)
def test_a_rule_without_code_or_tests_is_found(evidence: Evidence) -> None:
    assert len(wrong_with("standard:0", evidence)) == 1
