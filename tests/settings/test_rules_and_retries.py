"""Rules, and retry policies of single errors, in keepfast.toml, variables and code."""

from __future__ import annotations

import pytest

from keepfast.classify.classification import Rule, RuleBook, classify_key
from keepfast.classify.retry_policies import RetryPolicies
from keepfast.core.policies import RetryPolicy
from keepfast.settings import ConsumerSettings
from tests.settings.loader import Loader

FINANCIAL = RetryPolicy(max_retries=5, initial_delay_ms=5000, max_delay_ms=60_000)


class Busy(Exception):
    """A user's own."""


def kinds(settings: ConsumerSettings, *keys: str) -> list[str]:
    book = RuleBook(settings.rules)
    return [classify_key(key, book).kind for key in keys]


def test_rules_in_the_file_for_all_and_for_one_consumer(loader: Loader) -> None:
    toml = """
    [consumer.rules]
    "http:409" = "retryable outage code=BUSY"
    mylib.errors.Busy = "discard"
    ValueError = "retryable"

    [consumers.charge.rules]
    "mylib.errors.Busy" = "halt"
    """
    charge = loader.charge(toml=toml)
    assert kinds(charge, "http:409", "mylib.errors.Busy", "ValueError") == ["retryable", "halt", "retryable"]
    busy = next(rule for rule in charge.rules if rule.keys == ("http:409",))
    assert (busy.outage, busy.code, busy.name) == (True, "BUSY", "setting http:409")
    both = loader.load(toml=toml, consumers={"charge": {"topics": "a.b"}, "refund": {"topics": "a.b"}})
    assert kinds(both.consumers["refund"], "mylib.errors.Busy") == ["discard"]


def test_rules_in_variables(loader: Loader) -> None:
    environ = {
        "KEEPFAST_CONSUMER_RULES": "http:409=retryable code=BUSY; mylib.errors.Busy=discard;",
        "KEEPFAST_CONSUMERS_CHARGE_RULES": "sqlstate:23=halt\nmylib.errors.Busy = retryable outage",
    }
    charge = loader.charge(environ)
    assert kinds(charge, "http:409", "mylib.errors.Busy", "sqlstate:23505") == ["retryable", "retryable", "halt"]
    assert kinds(loader.charge(dotenv="KEEPFAST_CONSUMER_RULES=http:409=halt\n"), "http:409") == ["halt"]


def test_all_sources_hold_together_and_the_nearest_is_asked_first(loader: Loader) -> None:
    toml = '[consumer.rules]\n"http:409" = "discard"\n"http:410" = "discard"\n"http:411" = "discard"'
    environ = {"KEEPFAST_CONSUMER_RULES": "http:410=halt", "KEEPFAST_CONSUMERS_CHARGE_RULES": "http:412=halt"}
    code = [Rule("http:409", "retryable"), Rule("http:412", "retryable")]
    settings = loader.load(environ, toml=toml, rules=code)
    keys = "http:409", "http:410", "http:411", "http:412"
    assert kinds(settings.consumers["charge"], *keys) == ["retryable", "halt", "discard", "halt"]
    origins = [settings.origins[f"consumers.charge.consumer.rules.{key}"] for key in keys]
    assert origins == [
        "code, consumer charge: rules",
        "environment variable KEEPFAST_CONSUMER_RULES",
        "keepfast.toml [consumer] rules",
        "environment variable KEEPFAST_CONSUMERS_CHARGE_RULES",
    ]


def test_rules_in_code_are_a_list_or_a_table(loader: Loader) -> None:
    assert kinds(loader.charge(rules=Rule("http:409", "halt")), "http:409") == ["halt"]
    table = {Busy: "retryable outage", "http:409": "discard", "http:410": Rule("http:410", "halt")}
    charge = loader.charge(rules=table)
    assert kinds(charge, f"{__name__}.Busy", "http:409", "http:410") == ["retryable", "discard", "halt"]
    app_wide = {"consumer": {"rules": {"http:409": "halt"}}}
    assert kinds(loader.charge(settings=app_wide), "http:409") == ["halt"]


def test_every_problem_of_every_source_is_reported_at_once(loader: Loader) -> None:
    toml = """
    [consumer.rules]
    "http:999" = "retryable"
    "http:409" = "retry"
    "http:410" = 3
    [consumer.retries]
    "http:429" = "finacial"
    "http:503" = { max_retrys = 3, jitter = "no", max_delay_ms = -1 }
    "http:504" = { initial_delay_ms = 9, max_delay_ms = 8 }
    "http:505" = 5
    Busy = "none"
    """
    environ = {"KEEPFAST_CONSUMER_RULES": "http:409", "KEEPFAST_CONSUMER_RETRIES": "http=none; x.Y=none"}
    problems = loader.problems(environ, toml=toml, rules=["http:409"])
    wanted = [
        ("environment variable KEEPFAST_CONSUMER_RULES", "'http:409' is no entry"),
        ("environment variable KEEPFAST_CONSUMER_RETRIES", "'http' is neither a key"),
        ("keepfast.toml [consumer] rules", "write it like http:409"),
        ("keepfast.toml [consumer] rules", "has an unknown word 'retry'"),
        ("keepfast.toml [consumer] rules", "must be a string such as 'retryable'; got 3"),
        ("keepfast.toml [consumer] retries", "the retry policy for 'http:505' must be the name of a profile"),
        ("keepfast.toml [consumer] retries", "write the exception with its module"),
        ("code, consumer charge: rules", "a list of rules is made of Rule(…); got 'http:409'"),
    ]
    for origin, part in wanted:
        assert [one for one in problems if one.startswith(origin) and part in one], (origin, part, problems)
    assert len(problems) == len(wanted)
    fit = toml.replace('"http:505" = 5', "").replace('Busy = "none"', "").replace('"http:999" = "retryable"', "")
    fit = fit.replace('"retry"', '"retryable"').replace('"http:410" = 3', "")
    for part in (
        "there is no retry profile 'finacial'. Did you mean financial?",
        "the retry policy for http:503: 'max_retrys' is no retry setting. Did you mean max_retries?",
        "the retry policy for http:503: jitter must be true or false; got 'no'",
        "the retry policy for http:503: max_delay_ms must be a number from 0",
        "the retry policy for http:504: retry: initial_delay_ms (9) is larger than max_delay_ms (8)",
    ):
        found = [one for one in loader.problems(toml=fit) if part in one]
        assert len(found) == 1, (part, loader.problems(toml=fit))


@pytest.mark.parametrize("rules", [3, "http:409", {"http:409": {}}, {3: "halt"}, [3]])
def test_what_can_be_no_rules_is_refused(loader: Loader, rules: object) -> None:
    assert loader.problem(rules=rules).startswith("code, consumer charge: rules")


def test_retry_policies_of_single_errors_come_from_every_source(loader: Loader) -> None:
    toml = """
    [retry]
    jitter = false
    [retry.profiles.patient]
    max_retries = "forever"

    [consumer.retries]
    "http:429" = { max_retries = 10, initial_delay_ms = 12000 }
    mylib.errors.Busy = "patient"
    mylib.errors.Slow = { profile = "financial", max_elapsed_s = 60 }
    [consumers.charge.retries]
    "http:503" = "none"
    """
    environ = {
        "KEEPFAST_CONSUMERS_CHARGE_RETRIES": "http:503=financial",
        "KEEPFAST_CONSUMER_RETRIES": "TimeoutError=none; http:502=none",
    }
    charge = loader.charge(environ, toml=toml, retries={Busy: RetryPolicy(max_retries=1), "TimeoutError": "patient"})
    policies = RetryPolicies(charge.retry, charge.retries).by_error
    assert dict(policies) == {
        "http:503": FINANCIAL,  # for one consumer, the environment goes before the file
        "http:502": RetryPolicy(max_retries=0),
        "builtins.TimeoutError": RetryPolicy(max_retries=None),  # for one consumer goes before for all
        "http:429": RetryPolicy(max_retries=10, initial_delay_ms=12000, jitter=False),
        "mylib.errors.Busy": RetryPolicy(max_retries=None),
        "mylib.errors.Slow": RetryPolicy(max_retries=5, initial_delay_ms=5000, max_delay_ms=60_000, max_elapsed_s=60),
        f"{__name__}.Busy": RetryPolicy(max_retries=1),
    }


def test_a_table_says_what_differs_from_the_consumers_own_policy(loader: Loader) -> None:
    charge = loader.charge(retry="financial", retries={"http:429": {"max_retries": 9}})
    assert dict(charge.retries) == {"http:429": RetryPolicy(max_retries=9, initial_delay_ms=5000, max_delay_ms=60_000)}


def test_without_any_there_are_none(loader: Loader) -> None:
    assert (loader.charge().rules, loader.charge().retries) == ((), ())


def test_a_policy_for_an_error_that_is_final_is_warned_of(loader: Loader) -> None:
    policy = RetryPolicy(max_retries=9)
    warned = loader.load(retries={ValueError: policy, "http:503": policy, "http:404": policy, Busy: policy}).warnings
    assert [text.partition(" has no effect")[0] for text in warned] == [
        "consumer charge: the retry policy for builtins.ValueError",
        "consumer charge: the retry policy for http:404",
    ]
    assert "the rule value calls it non-retryable" in warned[0]
    rules = {ValueError: "retryable"}
    assert loader.load(retries={ValueError: policy, "http:404": policy}, rules=rules, not_found="retry").warnings == ()
