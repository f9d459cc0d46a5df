"""Which retry policy holds for an error."""

from __future__ import annotations

import pytest
import requests

from keepfast.classify.retry_policies import RetryPolicies
from keepfast.core.policies import RetryPolicy
from tests.classify.test_rules_language import http_error

USUAL = RetryPolicy()
ONE, TWO, THREE = (RetryPolicy(max_retries=number) for number in (11, 12, 13))


class Busy(Exception):
    """A user's own."""


class VeryBusy(Busy):
    """A kind of it."""


def of(error: BaseException, *by_error: tuple[str, RetryPolicy]) -> RetryPolicy:
    return RetryPolicies(USUAL, by_error).of(error)


BUSY, VERY_BUSY = f"{__name__}.Busy", f"{__name__}.VeryBusy"


def test_without_others_the_usual_one_holds() -> None:
    assert of(Busy()) is USUAL
    assert of(Busy(), ("http:429", ONE)) is USUAL


def test_the_most_derived_class_decides_whatever_the_order() -> None:
    named = ((BUSY, ONE), (VERY_BUSY, TWO), ("builtins.Exception", THREE))
    for pairs in (named, tuple(reversed(named))):
        assert [of(error, *pairs) for error in (Busy(), VeryBusy(), KeyError())] == [ONE, TWO, THREE]


def test_what_an_error_says_about_itself_goes_before_its_class() -> None:
    pairs = (("requests.exceptions.HTTPError", ONE), ("http:429", TWO), ("http:5xx", THREE))
    assert [of(http_error(status), *pairs) for status in (429, 503, 408)] == [TWO, THREE, ONE]
    assert of(requests.Timeout(), *pairs) is USUAL


def test_of_one_key_the_first_holds() -> None:
    assert of(Busy(), (BUSY, ONE), (BUSY, TWO)) is ONE


def test_groups_and_causes_are_asked_after_the_error_itself() -> None:
    caused = RuntimeError()
    caused.__cause__ = ExceptionGroup("several", [KeyError(), VeryBusy()])
    assert of(caused, (BUSY, ONE)) is ONE
    assert of(caused, (BUSY, ONE), ("builtins.RuntimeError", TWO)) is TWO


def test_a_chain_that_never_ends_does_end() -> None:
    first, second = RuntimeError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert of(first, (BUSY, ONE)) is USUAL
    deep: ExceptionGroup[Exception] = ExceptionGroup("deep", [ValueError()])
    for _ in range(500):
        deep = ExceptionGroup("deep", [deep])
    assert of(deep, (BUSY, ONE)) is USUAL


def test_an_error_that_cannot_be_looked_at_is_like_any_other() -> None:
    class Evil(Exception):
        @property
        def __cause__(self) -> BaseException:  # type: ignore[override]
            raise SystemExit

    assert of(Evil(), (BUSY, ONE)) is USUAL


@pytest.mark.parametrize(
    ("key", "found"), [("http:503", "http:5xx"), ("http:429", "http:429"), ("http:200", ""), ("sqlstate:40P01", "")]
)
def test_a_key_alone_finds_its_policy(key: str, found: str) -> None:
    assert RetryPolicies(USUAL, [("http:429", ONE), ("http:5xx", TWO)]).of_key(key)[0] == found


def test_a_class_alone_finds_its_policy() -> None:
    policies = RetryPolicies(USUAL, [(BUSY, ONE)])
    assert policies.of_class(VeryBusy) == (BUSY, ONE)
    assert policies.of_class(KeyError) == ("", USUAL)
