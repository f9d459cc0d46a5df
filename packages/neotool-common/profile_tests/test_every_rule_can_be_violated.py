"""Each rule that an app can break, broken by an app made for it; the good app breaks none."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from neotool_common.profiles import PROFILES, RULES

from keepfast import RetryPolicy, SqliteInbox
from keepfast.audit import AuditRule, examine
from keepfast.audit.report import exit_code
from keepfast.audit.rule import STATUSES
from keepfast.core.alerts import AlertPolicy
from keepfast.core.errors import ConfigError
from keepfast.monitoring.alerts import alerts_of
from tests.support.audited import DOCKERFILE, Payment, anything, result_of, subject

Difference = Mapping[str, Any]


def _rule(key: object, kind: str) -> Difference:
    return {"options": {"rules": {key: kind}}}


def _docker(old: str, new: str) -> Difference:
    assert old in DOCKERFILE
    return {"files": {"Dockerfile": DOCKERFILE.replace(old, new)}}


def _alerts(**policy: Any) -> Difference:
    return {"options": {"alerts": AlertPolicy(**policy)}}


UNSAFE = {
    "unsafe_timings": True,
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 2000,
    "max_poll_interval_ms": 10_000,
}
SHORT: Difference = {"options": UNSAFE}
SILENT: Difference = {"environ": {"HEALTH_CHECK_ENABLED": "false"}}
VALUES = _rule(ValueError, "retryable")
DROPPED = _rule("http:422", "discard")
DECODING = _rule("keepfast.core.errors.DecodeError", "retryable")
NAMELESS: Difference = {"options": {"group": "test"}}
UNNAMED: Difference = {"files": {"README.md": "# shop"}}
NO_ORDER: Difference = {"options": {"order": "none"}}
NO_JITTER: Difference = {"options": {"retry": RetryPolicy(jitter=False)}}
NO_TIMEOUT: Difference = {"options": {"timeout_s": None}}
TWICE: Difference = {"options": {"idempotent": False}}
LETTERS: Difference = {"options": {"dead_letter": "graveyard"}}
WARNING: Difference = {"settings": {"log": {"level": "WARNING"}}}
ERROR: Difference = {"settings": {"log": {"level": "ERROR"}}}
CRITICAL: Difference = {"settings": {"log": {"level": "CRITICAL"}}}
ANYTHING: Difference = {"handler": anything}
NO_TESTS: Difference = {"files": {"tests/test_shop.py": None}}
ROOT_USER = _docker("USER 1000:1000\n", "")
LARGE_BASE = _docker("python:3.13-slim", "python:3.13")
ALL_AT_ONCE = _docker("COPY pyproject.toml ./\n", "COPY . ./\n")


def _profile(name: str) -> Difference:
    return {"options": {"retry": name}, "environ": {f"KEEPFAST_RETRY_PROFILES_{name.upper()}_MAX_RETRIES": "1"}}


BREAKS: dict[str, Difference] = {
    "spring:retry.2": _profile("financial"),
    "spring:retry.3": _profile("notification"),
    "standard:1.1.1.1": _rule(ConnectionRefusedError, "non-retryable"),
    "standard:1.1.1.2": _rule("http:503", "non-retryable"),
    "standard:1.1.1.3": _rule("http:429", "discard"),
    "standard:1.1.1.4": _rule("sqlstate:40P01", "non-retryable"),
    "standard:1.1.1.5": _rule("kafka:_TRANSPORT", "non-retryable"),
    "standard:1.1.1.6": _rule(TimeoutError, "non-retryable"),
    "standard:1.1.2.1": VALUES,
    "standard:1.1.2.2": _rule("http:401", "retryable"),
    "standard:1.1.2.3": _rule("http:404", "discard"),
    "standard:1.1.2.4": _rule("sqlstate:23505", "discard"),
    "standard:1.1.2.5": DECODING,
    "standard:1.1.2.6": _rule(ConfigError, "retryable"),
    **dict.fromkeys(("standard:1.1.3.3", "standard:1.3.1.6", "loop:7", "pattern:runner.4"), ERROR),
    "standard:1.2.2.2": NO_JITTER,
    "standard:2.1.1": DROPPED,
    "standard:2.1.3": {"options": {"on_timeout": "hold"}},
    "standard:2.4": LETTERS,
    "standard:3.1.1": SHORT,
    "standard:3.1.2": SHORT,
    "standard:3.1.4": SHORT,
    "standard:3.1.6": {"options": {"session_timeout_ms": 45_000}},
    "standard:3.2.2": {"options": {"auto_offset_reset": "error"}},
    "standard:3.2.4": {"options": {"fetch_min_bytes": 1000}},
    "standard:3.2.5": {"options": {"fetch_max_wait_ms": 5000}},
    "standard:5.1.2": NAMELESS,
    "standard:5.1.3": NAMELESS,
    "standard:5.1.4": UNNAMED,
    **{f"standard:6.1.{number}": SILENT for number in range(1, 7)},
    "standard:6.2.1": ERROR,
    "standard:6.2.2": WARNING,
    "standard:6.2.3": CRITICAL,
    "standard:6.2.4": ERROR,
    "standard:7.1.5": {"files": {"Dockerfile": None}},
    "standard:9.1.1": {"options": {"retry": RetryPolicy(max_retries=17)}},
    "standard:9.1.4": NO_JITTER,
    "standard:9.1.5": VALUES,
    "standard:9.3.1": NO_ORDER,
    "standard:9.3.3": NO_TIMEOUT,
    "standard:9.4.1": NAMELESS,
    "standard:9.4.4": UNNAMED,
    "standard:10.4": UNNAMED,
    "standard:10.5": SILENT,
    "standard:10.6": UNNAMED,
    "loop:4": TWICE,
    "loop:9": _rule("sqlstate:08006", "non-retryable"),
    "loop:10": DECODING,
    "loop:15": NO_ORDER,
    "pattern:design.1": NO_ORDER,
    "pattern:package.1": {"files": {"pyproject.toml": None}},
    "pattern:package.2": {"files": {".dockerignore": None}},
    "pattern:package.6": {"files": {"pyproject.toml": "[project]\n"}},
    "pattern:package.7": _docker("ENV PIP_NO_CACHE_DIR=1\n", "ENV PIP_NO_CACHE_DIR=1 PYTHONPATH=/app\n"),
    "pattern:components.2": ANYTHING,
    "pattern:docker.1": _docker("FROM python:3.13-slim\n", "FROM python:3.13-alpine\nRUN apt-get install curl\n"),
    "pattern:docker.2": ROOT_USER,
    "pattern:docker.3": _docker("RUN pip install .\n", ""),
    "pattern:docker.4": _docker("COPY pyproject.toml ./\nRUN pip install .\nCOPY src ./src\n", ""),
    "pattern:docker.5": _docker("8080/health", "8080/"),
    "pattern:docker.6": ALL_AT_ONCE,
    "pattern:docker.7": LARGE_BASE,
    "pattern:docker.8": _docker("--interval=30s", "--interval=5m"),
    "pattern:docker.9": _docker('ENTRYPOINT ["shop-consumer"]', "ENTRYPOINT shop-consumer"),
    "pattern:docker.10": _docker("EXPOSE 8080\n", ""),
    "pattern:compose.1": {"files": {"compose.yaml": None}},
    "pattern:health.1": SILENT,
    "pattern:security.1": _docker("USER 1000:1000", "USER 33"),
    "pattern:security.2": LARGE_BASE,
    "pattern:security.3": _docker("ENV PIP_NO_CACHE_DIR=1\n", ""),
    "pattern:security.4": ALL_AT_ONCE,
    "pattern:security.5": _docker("COPY src", "RUN apt-get install -y curl\nCOPY src"),
    "pattern:build.1": _docker("COPY src", "RUN apt-get install --no-install-recommends gcc\nCOPY src"),
    "pattern:build.2": ALL_AT_ONCE,
    "pattern:build.3": ALL_AT_ONCE,
    "pattern:build.4": ALL_AT_ONCE,
    "pattern:letters.1": LETTERS,
    "pattern:practice.2": TWICE,
    "pattern:practice.5": ANYTHING,
    "pattern:practice.7": VALUES,
    "pattern:practice.8": SILENT,
    "pattern:shutdown.6": {"options": {"timeout_s": 300}},
    **{f"pattern:metrics.{number}": SILENT for number in range(1, 6)},
    **{f"pattern:unit.{number}": NO_TESTS for number in range(1, 5)},
    "pattern:pitfalls.4": SILENT,
    "pattern:pitfalls.13": TWICE,
    "pattern:high.5": NO_TIMEOUT,
    "fraud:context.2": TWICE,
    "fraud:decision.2": LETTERS,
    "fraud:consumer.1": ANYTHING,
    "fraud:errors.1": VALUES,
    "fraud:errors.2": _rule("sqlstate:08006", "non-retryable"),
    "fraud:errors.4": _rule("keepfast.core.errors.Reject", "retryable"),
    "fraud:idempotency": TWICE,
    "fraud:alternatives.2": DROPPED,
    "spring:dlt.1": LETTERS,
    "spring:poison.1": DECODING,
    "spring:poison.2": VALUES,
    "spring:poison.3": _rule("http:503", "non-retryable"),
    "spring:commit.5": TWICE,
}

BREAKS |= {
    **{f"pattern:{place}": SILENT for place in ("health.2", "python.10", "high.2", "high.3", "medium.3")},
    **{f"pattern:indicators.{number}": SILENT for number in range(1, 4)},
    **{f"pattern:watch.{number}": SILENT for number in range(1, 6)},
    **{f"pattern:checklist.{number}": SILENT for number in range(1, 6)},
    **dict.fromkeys(("pattern:constrained.3", "spring:lag.5", "spring:lag.6"), SILENT),
    "pattern:alerts.1": _alerts(error_share=0.5),
    "pattern:alerts.2": _alerts(letter_share=0.02),
    "pattern:alerts.3": _alerts(partition_lag=10_001),
    "pattern:alerts.4": _alerts(without=("KeepfastStuckPartitions",)),
    "pattern:alerts.5": _alerts(without=("KeepfastDeadLettersNotPublished",)),
    "pattern:alerts.6": _alerts(rebalances_per_hour=2),
    "pattern:alerts.7": _alerts(without=("KeepfastShutdownTimeout",)),
    "spring:lag.1": _alerts(kind="financial", lag_warning=500),
    "spring:lag.2": _alerts(kind="notification", lag_critical=6_000),
    "spring:lag.3": _alerts(without=("KeepfastLag",)),
    "spring:lag.4": _alerts(letters_critical=11),
    **dict.fromkeys(("standard:9.2.1", "fraud:consequences.4"), _alerts(without=("KeepfastDeadLetters",))),
}

NOT_SEEN = (
    # Tested in our own repository, or written into a project by `keepfast new`: nothing that is known of an app.
    "standard:1.4.4",
    *(f"standard:8.1.{number}" for number in range(1, 6)),
    *(f"standard:8.2.{number}" for number in range(1, 5)),
    *("pattern:integration.2", "pattern:integration.3", "pattern:integration.4"),
    *("pattern:components.7", "pattern:config.6", "pattern:config.7", "pattern:python.1", "pattern:python.8"),
    *("pattern:compose.2", "pattern:compose.3", "pattern:compose.4"),
    *("pattern:package.4", "pattern:runner.2"),
    *(f"pattern:runbook.{number}" for number in range(1, 6)),
    "fraud:consequences.5",
)
NEVER_BROKEN = {
    # What an app chooses here is passed, overruled by a decision or not applicable; see test_what_overrules_a_rule.
    *("standard:1.2.3.1", "standard:1.2.3.2", "standard:1.3.2.3", "standard:9.1.3", "pattern:python.2"),  # a rate
    "pattern:python.6",
    *(
        "standard:1.3.1.1",
        "standard:1.3.1.5",
        "standard:2.1.2",
        "pattern:pitfalls.3",
        "fraud:alternatives.3",
    ),  # forever
    *(
        "standard:1.3.2.4",
        "standard:3.1.3",
        "standard:3.1.5",
        "pattern:polling.3",
        "standard:5.2.1",
        "spring:rebalance",
    ),
    *("standard:2.2", "pattern:letters.2", "fraud:envelope", "spring:dlt.2"),  # forms of letters
    *("fraud:decision.1", "fraud:decision.3", "spring:groups.3", "pattern:package.3"),  # names and layouts
    *("standard:2.3.2", "standard:4.1.3", "pattern:limits.5", "pattern:high.1"),  # a spool
    *("pattern:limits.6", "pattern:medium.1", "fraud:errors.3", "fraud:errors.5", "spring:retry.1", "spring:retry.4"),
    # Settings that would break these are refused before anything is looked at.
    *("standard:3.2.3", "standard:4.2.3"),
    # Nothing that an app could show.
    *("standard:5.2.6", "standard:9.2.4", "standard:9.4.3", "standard:10.1", "standard:10.2"),
    *("pattern:docker.11", "pattern:low.2", "pattern:throughput.4"),
    *NOT_SEEN,
}

LOOKED_AT = {rule.id: rule for rule in RULES if rule.check is not None}


def status_of(rule: AuditRule, tmp_path: Path, **difference: Any) -> str:
    result = result_of(subject(tmp_path, **difference), rule)
    finding = result.findings[0]
    assert finding.reason, rule.id
    assert (finding.status == "failed") == bool(finding.fix), rule.id
    return result.status


@pytest.mark.parametrize("rule", BREAKS)
def test_an_app_that_breaks_it_fails(rule: str, tmp_path: Path) -> None:
    assert status_of(LOOKED_AT[rule], tmp_path, **BREAKS[rule]) == "failed"


def test_every_checked_rule_is_broken_here_or_listed_as_safe() -> None:
    assert set(BREAKS) | NEVER_BROKEN == set(LOOKED_AT)
    assert set(BREAKS) & NEVER_BROKEN == set()


def test_alerts_are_known_by_the_names_that_monitoring_gives_them(tmp_path: Path) -> None:
    good = subject(tmp_path)
    written = {alert.name for alerts in alerts_of(good.settings).values() for alert in alerts}
    printed = {
        one.findings[0].reason
        for one in examine(good, PROFILES)
        if "`keepfast monitoring` writes" in one.findings[0].reason
    }
    assert len(printed) == 9
    assert {reason.removeprefix("`keepfast monitoring` writes ").removesuffix(".") for reason in printed} <= written


BUILT = """\
FROM --platform=linux/amd64 python:3.13-slim AS build
USER 1000
HEALTHCHECK --interval=30s CMD curl http://localhost:8080/health
ENTRYPOINT ["shop-consumer"]
"""
FIRST_STAGE_ALONE = f"{BUILT}FROM python:3.13-slim\nCOPY --from=build /app /app\nENTRYPOINT shop-consumer\nCMD []\n"


@pytest.mark.parametrize("rule", ["docker.2", "docker.5", "docker.9", "security.1"])
@pytest.mark.parametrize(
    ("dockerfile", "status"),
    [(FIRST_STAGE_ALONE, "failed"), (f"{BUILT}FROM build\nCOPY src ./src\n", "passed")],
    ids=["in an earlier stage that is left behind", "in a stage that the image begins with"],
)
def test_what_a_stage_says_holds_only_if_the_image_begins_with_it(
    rule: str, dockerfile: str, status: str, tmp_path: Path
) -> None:
    assert status_of(LOOKED_AT[f"pattern:{rule}"], tmp_path, files={"Dockerfile": dockerfile}) == status


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        ('["/bin/sh", "-c", "shop-consumer --all"]', "failed"),
        ('["sh", "-c", "exec shop-consumer --all"]', "passed"),
        ('["shop-consumer"]\nCMD ["--all"]', "passed"),
    ],
)
def test_a_shell_in_a_list_is_a_shell(entry: str, status: str, tmp_path: Path) -> None:
    difference = _docker('["shop-consumer"]', entry)
    assert status_of(LOOKED_AT["pattern:docker.9"], tmp_path, **difference) == status


@pytest.mark.parametrize("rule", ["docker.5", "docker.10"])
def test_the_port_is_that_which_takes_effect(rule: str, tmp_path: Path) -> None:
    pattern, moved = LOOKED_AT[f"pattern:{rule}"], {"HEALTH_CHECK_PORT": "9090"}
    assert status_of(pattern, tmp_path, environ=moved) == "failed"
    assert status_of(pattern, tmp_path, files={"keepfast.toml": "[health]\nport = 9090\n"}) == "failed"
    elsewhere = {"files": {"keepfast.toml": None, "Dockerfile": DOCKERFILE.replace("8080", "9090")}}
    assert status_of(pattern, tmp_path, environ=moved, **elsewhere) == "passed"
    inside = DOCKERFILE.replace("8080", "9090").replace("USER", "ENV HEALTH_CHECK_PORT=9090\nUSER")
    assert status_of(pattern, tmp_path, files={"Dockerfile": inside}) == "passed"


def test_the_good_app_breaks_none(tmp_path: Path) -> None:
    results = examine(subject(tmp_path), PROFILES)
    assert [one.rule.id for one in results if one.status == "failed"] == []
    assert exit_code(results, strict=True) == 0
    assert {one.status for one in results} == set(STATUSES) - {"failed"}


def test_one_bad_consumer_among_good_ones_is_named(tmp_path: Path) -> None:
    good = subject(tmp_path)
    bad = subject(tmp_path, options={"order": "none"})
    good.consumers.extend(bad.consumers)
    result = result_of(good, LOOKED_AT["standard:9.3.1"])
    assert [(one.status, one.consumer) for one in result.findings] == [("failed", "charge"), ("passed", "charge")]


def test_a_rule_can_be_left_out_by_its_name_and_no_other(tmp_path: Path) -> None:
    broken = subject(tmp_path, files={"README.md": None})
    assert exit_code(examine(broken, PROFILES), strict=False) == 1
    left_out = ["standard:5.1.4", "standard:10.4", "standard:10.6"]
    assert exit_code(examine(broken, PROFILES, ignore=left_out), strict=False) == 0
    with pytest.raises(ConfigError, match="no rule 'standard:99'"):
        examine(broken, PROFILES, ignore=["standard:99"])


def test_broken_should_rules_count_only_if_asked_for(tmp_path: Path) -> None:
    results = examine(subject(tmp_path, options={"timeout_s": None}), PROFILES)
    assert (exit_code(results, strict=False), exit_code(results, strict=True)) == (0, 1)


def beside(payment: Payment) -> None:
    """Has an inbox, and does not take its transaction."""


def around(payment: Payment, tx: sqlite3.Connection) -> None:
    """Writes in the transaction of the inbox."""


@pytest.mark.parametrize(("handler", "status"), [(around, "passed"), (beside, "failed")])
def test_an_inbox_makes_a_handler_idempotent_if_it_takes_the_transaction(
    tmp_path: Path, handler: Callable[..., None], status: str
) -> None:
    inbox = SqliteInbox(tmp_path / "inbox.db")
    audited = subject(tmp_path, handler=handler, options={"idempotent": False, "inbox": inbox})
    result = result_of(audited, LOOKED_AT["fraud:context.2"])
    assert result.status == status
    assert ("tx:" in (result.findings[0].fix or "")) == (status == "failed")
