"""Breaks of what errors mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from profile_tests.breaking import add, breaks, change, replace, wrap

from keepfast.classify import classification
from keepfast.classify.rules import language, rule_book, services, table
from keepfast.classify.rules.error_keys import KeyFinder
from keepfast.classify.rules.rule_book import Lookup, RuleBook
from keepfast.engine import calls

FINAL, AGAIN = "non-retryable", "retryable"


def judge(kind: str, *, name: str = "", key: str = "") -> None:
    """The rule of that name, or for that key, says another thing."""
    [rule] = [one for one in table.RULES if one.name == name or (key and key in one.keys)]
    assert rule.kind != kind
    change(rule, kind=kind)


@cache
def _judged(kind: str, *, name: str = "", key: str = "") -> Callable[[], None]:
    return lambda: judge(kind, name=name, key=key)


def _add(evidence: str, kind: str, **rule: str) -> None:
    name = "_".join([*rule.values(), "is", kind]).replace("-", "_").replace(":", "_")
    add(evidence, name, _judged(kind, **rule))


for _evidence, _kind, _rule in [
    ("PYTHON_ERRORS", FINAL, "network"),
    ("PYTHON_ERRORS", FINAL, "timeout"),
    ("PYTHON_ERRORS", AGAIN, "configuration"),
    ("NOT_VALID", AGAIN, "pydantic"),
    ("NOT_VALID", AGAIN, "msgspec"),
    ("CONTENTION", FINAL, "sqlstate-conflict"),
    ("CONTENTION", FINAL, "db-pool"),
    ("CONSTRAINTS", AGAIN, "sqlstate-constraint"),
    ("DISCONNECTED", FINAL, "db-down"),
    ("DISCONNECTED", FINAL, "sqlstate-down"),
    ("KAFKA_ERRORS", FINAL, "kafka-down"),
    ("KAFKA_ERRORS", FINAL, "kafka-passing"),
    ("GARBAGE", AGAIN, "decode"),
    ("FRAUD_TABLE", AGAIN, "decode"),
    ("FRAUD_TABLE", FINAL, "sqlstate-conflict"),
    ("FRAUD_TABLE", AGAIN, "value"),
    ("SUNK", FINAL, "discard"),
    ("SHARED_RULES", FINAL, "http-unavailable"),
]:
    _add(_evidence, _kind, name=_rule)

for _kind, _key in [(FINAL, "http:429"), (AGAIN, "http:401"), (AGAIN, "http:404")]:
    _add("STATUSES", _kind, key=_key)


@breaks("STATUSES")
def nothing_is_known_of_status_504() -> None:
    def candidates(index: Any, key: str) -> Any:
        return () if key == "http:504" else before(index, key)

    before = replace(rule_book, "_candidates", candidates)


@breaks("CATEGORIES")
def services_have_no_rules() -> None:
    replace(table, "RULES", tuple(rule for rule in table.RULES if rule not in services.SERVICE_RULES))


@breaks("CATEGORIES")
def what_has_no_rule_is_not_classified() -> None:
    def classify(error: BaseException, rules: RuleBook = classification.BUILT_IN, **_: Any) -> Any:
        return rules.classify(error, Lookup("retry", "final", None))

    replace(classification, "classify", classify)


@breaks("NOT_VALID")
def a_missing_field_has_no_code_of_its_own() -> None:
    [rule] = [one for one in language.LANGUAGE_RULES if one.name == "pydantic"]
    before = rule.code_of
    assert before is not None
    change(rule, code_of=lambda error: None if before(error) == "MISSING_REQUIRED_FIELD" else before(error))


@breaks("UNKNOWN")
def the_setting_for_unknown_errors_is_ignored() -> None:
    def unknown_kind(self: Lookup) -> str:
        return "retryable"

    replace(Lookup, "unknown_kind", property(unknown_kind))


@breaks("OWN_RULES")
def built_in_rules_go_first() -> None:
    def init(self: RuleBook, rules: Any = ()) -> None:
        before(self, rules)
        change(self, _indexes=self._indexes[::-1])
        change(self, _key_finder=KeyFinder(self._indexes))

    before = replace(RuleBook, "__init__", init)


@breaks("NEVER_RAISES")
def what_a_handler_raises_goes_on_to_its_worker() -> None:
    vars(calls)["BaseException"] = ZeroDivisionError  # the name that its `except` looks up


@breaks("SHARED_RULES")
def only_exceptions_are_retried() -> None:
    def only(before: Any) -> Any:
        return lambda error: isinstance(error, BaseException) and before(error)

    wrap(classification, "is_retryable_error", only)
