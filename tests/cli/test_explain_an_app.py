"""`keepfast explain --app`: by the rules and settings of an app."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import keepfast

APP = """
from keepfast import App, RetryPolicy, Rule

class Busy(Exception): pass
class Closed(ConnectionError): pass

app = App("shop")

@app.consumer("orders.payment.v1", rules=[Rule(Busy, "retryable", why="It passes.")],
              retries={Busy: RetryPolicy(max_retries=9, initial_delay_ms=100, jitter=False), ValueError: "financial"})
def charge(value: bytes) -> None: ...

@app.consumer("orders.refund.v1", retry="financial", unknown_errors="dead-letter")
def refund(value: bytes) -> None: ...
"""
TOML = """
[consumer.rules]
"http:409" = "retryable outage code=BUSY"
[consumers.refund.rules]
"shop_main.Closed" = "discard"
[consumer.retries]
"http:503" = { max_retries = "forever", max_elapsed_s = 60 }
"http:409" = "none"
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop_main.py").write_text(APP)
    (tmp_path / "keepfast.toml").write_text(TOML)
    return tmp_path


def explain(shop: Path, *arguments: str) -> str:
    done = keepfast("explain", *arguments, "--app", "shop_main:app", cwd=shop)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(shop: Path, asked: str, consumer: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(explain(shop, asked, "--consumer", consumer, "--json"))
    return answer


@pytest.mark.parametrize(
    ("asked", "consumer", "kind", "code", "rule", "origin"),
    [
        ("http:409", "charge", "retryable", "BUSY", "setting http:409", "keepfast.toml [consumer] rules"),
        ("shop_main.Busy", "charge", "retryable", "BUSY", "rule for shop_main.Busy", "code, consumer charge: rules"),
        ("shop_main.Busy", "refund", "non-retryable", "UNHANDLED_EXCEPTION", "unknown", ""),
        ("shop_main.Closed", "charge", "retryable", "NETWORK_ERROR", "network", ""),
        (
            "shop_main.Closed",
            "refund",
            "discard",
            "CLOSED",
            "setting shop_main.Closed",
            "keepfast.toml [consumers.refund] rules",
        ),
    ],
)
def test_the_rule_that_decides_is_the_consumers(  # noqa: PLR0917
    shop: Path, asked: str, consumer: str, kind: str, code: str, rule: str, origin: str
) -> None:
    reported = as_json(shop, asked, consumer)
    assert (reported["consumer"], reported["kind"], reported["code"]) == (consumer, kind, code)
    assert (reported["rule"], reported["rule_from"]) == (rule, origin)


def test_the_policy_is_the_consumers_and_the_errors(shop: Path) -> None:
    usual = as_json(shop, "http:502", "charge")
    assert (usual["policy"]["max_retries"], usual["policy_for"]) == (3, "")
    assert as_json(shop, "http:502", "refund")["policy"]["max_retries"] == 5
    forever = as_json(shop, "http:503", "refund")
    assert (forever["policy"]["max_retries"], forever["policy_for"]) == (None, "http:503")
    busy = explain(shop, "shop_main.Busy", "--consumer", "charge")
    assert "It passes." in busy
    assert "Retried 9 times (the policy for shop_main.Busy, from code, consumer charge: retries), after 0.1 s" in busy
    ended = explain(shop, "http:503", "--consumer", "charge")
    assert "none later than 60 s after the first attempt; then dead-lettered" in ended
    assert "Dead-lettered at once, without retries (the policy for http:409" in explain(
        shop, "http:409", "--consumer", "charge"
    )


def test_a_policy_for_an_error_that_is_final_is_reported_to_have_no_effect(shop: Path) -> None:
    assert "Its retry policy has no effect" in explain(shop, "ValueError", "--consumer", "charge")


def test_without_a_consumer_every_one_answers(shop: Path) -> None:
    shown = explain(shop, "shop_main.Busy")
    assert ", for consumer charge" in shown
    assert ", for consumer refund" in shown
    assert "unknown_errors=dead-letter" in shown
    assert [json.loads(line)["consumer"] for line in explain(shop, "http:409", "--json").splitlines()] == [
        "charge",
        "refund",
    ]
    assert "setting http:409: retryable, outage\n  From keepfast.toml [consumer] rules." in explain(shop, "--list")


def test_problems_are_reported(shop: Path) -> None:
    wrong = keepfast("explain", "http:409", "--app", "shop_main:app", "--consumer", "chagre", cwd=shop)
    assert wrong.returncode == 2
    assert "no consumer named 'chagre'" in wrong.stderr
    alone = keepfast("explain", "http:409", "--consumer", "charge", cwd=shop)
    assert alone.returncode == 2
    assert "--consumer needs --app" in alone.stderr
    (shop / "keepfast.toml").write_text('[consumer.rules]\n"http:999" = "halt"\n"http:4" = "halt"')
    broken = keepfast("explain", "http:409", "--app", "shop_main:app", cwd=shop)
    assert broken.returncode == 2
    assert "2 problems" in broken.stderr
