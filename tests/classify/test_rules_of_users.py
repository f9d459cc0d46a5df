"""Rules that users add, in code and as text."""

from __future__ import annotations

import pytest
import requests
import sqlalchemy as sa

from keepfast.classify.classification import Rule, RuleBook, classify, parse_rule
from keepfast.core.errors import ConfigError, DecodeError, Discard, HandlerTimeout, Reject
from keepfast.redact.sensitive import SensitiveData
from tests.classify.errors import caught
from tests.classify.test_rules_language import http_error

HERE = __name__


class Busy(Exception):
    """A user's own."""


class VeryBusy(Busy):
    """A kind of it."""

    def __init__(self, level: int = 0) -> None:
        self.level = level
        super().__init__()


class Teapot(requests.HTTPError):
    """A user's own kind of a library's error."""


def classified(error: BaseException, *rules: Rule) -> tuple[str, str]:
    result = classify(error, RuleBook(rules), unknown="dead-letter")
    return result.kind, result.code


def test_a_rule_by_class_or_by_name_holds_for_subclasses() -> None:
    for match in (Busy, f"{HERE}.Busy"):
        assert classified(Busy(), Rule(match, "retryable")) == ("retryable", "BUSY")
        assert classified(VeryBusy(), Rule(match, "retryable", code="BUSY")) == ("retryable", "BUSY")
    assert classified(VeryBusy(), Rule(Busy, "retryable")) == ("retryable", "VERY_BUSY")


def test_the_rule_for_the_most_derived_class_decides_whatever_the_order() -> None:
    rules = (Rule(Busy, "retryable"), Rule(VeryBusy, "discard"))
    assert classified(VeryBusy(), *rules)[0] == classified(VeryBusy(), *reversed(rules))[0] == "discard"


def test_of_several_for_one_class_the_first_that_fits_decides() -> None:
    rules = (Rule(VeryBusy, "halt", when=lambda e: e.level > 5), Rule(VeryBusy, "retryable"), Rule(VeryBusy, "discard"))  # type: ignore[attr-defined]
    assert classified(VeryBusy(9), *rules)[0] == "halt"
    assert classified(VeryBusy(1), *rules)[0] == "retryable"


def test_a_predicate_that_fails_does_not_match() -> None:
    assert classified(Busy(), Rule(Busy, "discard", when=lambda e: e.level > 5))[0] == "non-retryable"  # type: ignore[attr-defined]


def test_a_users_rule_goes_before_every_built_in_one() -> None:
    assert classified(KeyError(), Rule(LookupError, "retryable"))[0] == "retryable"
    assert classified(ConnectionResetError(), Rule(Exception, "non-retryable"))[0] == "non-retryable"
    assert classified(ConnectionResetError(), Rule("errno:ECONNRESET", "halt"))[0] == "retryable"  # it has no number
    assert classified(ConnectionResetError(104, "x"), Rule("errno:ECONNRESET", "halt"))[0] == "halt"


@pytest.mark.parametrize("broad", ["Exception", "BaseException", Exception])
def test_a_rule_for_everything_does_not_apply_to_explicit_verdicts(broad: str | type[BaseException]) -> None:
    rules = [Rule(broad, "retryable")]
    assert classified(ValueError(), *rules)[0] == "retryable"
    assert classified(Discard("not ours"), *rules) == ("discard", "DISCARDED")
    assert classified(SensitiveData("a card number"), *rules)[0] == "discard", "no copy of it, anywhere"
    assert classified(Reject("no"), *rules) == ("non-retryable", "REJECTED")
    assert classified(DecodeError("no JSON"), *rules)[0] == "non-retryable"
    assert classified(HandlerTimeout(1.0), *rules)[0] == "non-retryable"
    assert classified(Discard("not ours"), Rule(Discard, "non-retryable"))[0] == "non-retryable", "unless it is named"


def test_a_rule_by_status_state_or_name() -> None:
    assert classified(http_error(409), Rule("http:409", "retryable")) == ("retryable", "HTTP_409")
    assert classified(http_error(418), Rule("http:4xx", "retryable"))[0] == "retryable"
    assert classified(http_error(409), Rule("http:4xx", "halt"), Rule("http:409", "retryable"))[0] == "retryable"
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        nonsense = caught(lambda: connection.execute(sa.text("nonsense")))
    engine.dispose()
    assert classified(nonsense, Rule("sqlite3.OperationalError", "discard", code="NO_SQL")) == ("discard", "NO_SQL")


def test_a_users_own_subclass_is_closer_than_the_status_it_carries() -> None:
    response = http_error(503).response
    rules = (Rule("http:503", "retryable"), Rule(Teapot, "discard"), Rule("requests.HTTPError", "halt"))
    assert classified(Teapot(response=response), *rules)[0] == "discard"
    assert classified(http_error(503), *rules)[0] == "retryable"
    assert classified(http_error(500), *rules)[0] == "halt"


def test_a_rule_may_name_a_class_as_its_package_shows_it() -> None:
    assert classified(requests.Timeout(), Rule("requests.Timeout", "halt"))[0] == "halt"
    assert classified(TimeoutError(), Rule("asyncio.TimeoutError", "halt"))[0] == "halt"
    assert classified(OSError(), Rule("IOError", "halt"))[0] == "halt"


def test_a_rule_may_hand_the_decision_to_a_setting() -> None:
    assert classified(ValueError(), Rule(ValueError, "unknown"))[0] == "non-retryable"
    assert classify(ValueError(), RuleBook([Rule(ValueError, "unknown")])).kind == "retryable"


def test_only_what_is_retried_can_be_an_outage() -> None:
    book = RuleBook([parse_rule(f"{HERE}.Busy", "retryable outage"), Rule(KeyError, "discard", outage=True)])
    assert classify(Busy(), book).outage
    assert not classify(KeyError(), book).outage


@pytest.mark.parametrize(
    ("key", "value", "keys", "kind", "outage", "code"),
    [
        ("mylib.errors.Busy", "retryable", ("mylib.errors.Busy",), "retryable", False, ""),
        ("http:409", " Retryable ", ("http:409",), "retryable", False, ""),
        ("HTTP:5XX", "halt", ("http:5xx",), "halt", False, ""),
        ("sqlstate:23", "non-retryable", ("sqlstate:23",), "non-retryable", False, ""),
        ("sqlstate:40p01", "discard", ("sqlstate:40P01",), "discard", False, ""),
        ("KeyError", "retryable", ("builtins.KeyError",), "retryable", False, ""),
        (
            "KafkaError:_TRANSPORT",
            "retryable, outage, code=KAFKA_AWAY",
            ("kafka:_TRANSPORT",),
            "retryable",
            True,
            "KAFKA_AWAY",
        ),
        ("grpc:aborted", "unknown", ("grpc:ABORTED",), "unknown", False, ""),
        ("aws:SlowDown", "retryable code=SLOW", ("aws:SlowDown",), "retryable", False, "SLOW"),
        ("errno:ENOSPC", "halt", ("errno:ENOSPC",), "halt", False, ""),
    ],
)
def test_a_rule_as_text(*, key: str, value: str, keys: tuple[str, ...], kind: str, outage: bool, code: str) -> None:
    rule = parse_rule(key, value)
    assert (rule.keys, rule.kind, rule.outage, rule.code) == (keys, kind, outage, code)
    assert rule.name == f"setting {key}"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("Busy", "retryable", "write the exception with its module, as in mylib.errors.Busy"),
        ("http:999", "retryable", "write it like http:409 or http:4xx"),
        ("sqlstate:2", "retryable", "write it like sqlstate:23505"),
        ("ftp:550", "retryable", "the part before the colon must be one of http:, sqlstate:"),
        ("", "retryable", "write an exception as module.Class"),
        ("a b.C", "retryable", "neither a key nor a built-in exception"),
        ("http:409", "retry", "has an unknown word 'retry'. Write one of retryable, non-retryable, discard, halt"),
        ("http:409", "", "has no kind"),
        ("http:409", "retryable halt", "has an unknown word 'halt'"),
        ("http:409", "retryable code=low", "upper-case, like CARD_EXPIRED"),
        ("http:409", True, "must be a string such as 'retryable'"),
    ],
)
def test_a_wrong_rule_is_refused_with_what_to_write(key: str, value: object, problem: str) -> None:
    with pytest.raises(ConfigError) as caught_error:
        parse_rule(key, value)
    assert problem in str(caught_error.value)


def test_a_wrong_rule_in_code_says_everything_at_once() -> None:
    with pytest.raises(ConfigError) as caught_error:
        Rule(("Busy", "http:1"), "retry", code="x")  # type: ignore[arg-type]
    assert len(caught_error.value.problems) == 4
    with pytest.raises(ConfigError, match="must match an exception class"):
        Rule((), "retryable")
