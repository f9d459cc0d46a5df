"""Each alert against made-up series, by promtool's own evaluation: all that fire in a story are named, so the others
are silent. Series come once a minute; a story is looked at after half an hour unless it says otherwise.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from keepfast.monitoring import alerts_of, rules_file
from keepfast.settings import Settings
from tests.monitoring.apps import CHARGE, settings_of
from tests.monitoring.prometheus import program

pytestmark = pytest.mark.promtool

OWN = 'group="payments.charge",topic="orders.payment.v1"'
GROUP = 'group="payments.charge"'
AT = 'job="j",instance="i"'
INFO = f'keepfast_app_info{{app="payments",{AT}}}'
PROCESSED = f'orders_payment_processed_total{{status="success",{OWN},{AT}}}'
ERRORS = f'orders_payment_error_count_total{{error_type="E",error_classification="retryable",{OWN},{AT}}}'
LETTERS = f'orders_payment_dlq_count_total{{error_type="E",error_classification="retryable",{OWN},{AT}}}'
UNPUBLISHED = f"orders_payment_dlq_publish_failure_total{{{OWN},{AT}}}"
DEAD_LETTERED = f'kafka_dlq_messages_total{{dead_letter_topic="orders.payment.dlq",{OWN},{AT}}}'
UNRESOLVED = f"keepfast_dlq_unresolved{{{OWN},{AT}}}"
LAG = f'keepfast_behind_records{{partition="0",{OWN},{AT}}}'
OTHER_LAG = f'keepfast_behind_records{{partition="1",{OWN},{AT}}}'
FINISHED_ABOVE = f'keepfast_finished_above_records{{partition="0",{OWN},{AT}}}'
OLDEST = f'kafka_consumer_lag_seconds{{partition="0",{OWN},{AT}}}'
STUCK = f"keepfast_stuck_partitions{{{GROUP},{AT}}}"
AGE = f"keepfast_loop_turn_age_seconds{{{GROUP},{AT}}}"
ASSIGNED = f'keepfast_rebalances_total{{event="assigned",{GROUP},{AT}}}'
SHUTDOWN = f"keepfast_shutdown_duration_seconds{{{AT}}}"
SHUTDOWN_TIMEOUT = f"keepfast_shutdown_timeout_seconds{{{AT}}}"
MISSED = f"keepfast_shutdown_timeouts_total{{{AT}}}"
BREAKER = f"keepfast_breaker_open{{{GROUP},{AT}}}"
STORM = f"keepfast_storm_guard_tripped{{{GROUP},{AT}}}"
STUCK_HANDLERS = f"keepfast_stuck_handlers{{{GROUP},{AT}}}"
PAUSE_AGE = f"keepfast_operator_pause_age_seconds{{{GROUP},{AT}}}"
NOT_FETCHED = f"keepfast_not_fetched_partitions{{{GROUP},{AT}}}"
ENDED = f"keepfast_consumer_ended{{{GROUP},{AT}}}"
REPLACED = f"keepfast_clients_replaced_total{{{GROUP},{AT}}}"
ABANDONED = f"keepfast_abandoned_threads{{{GROUP},{AT}}}"
COMMITS = f"keepfast_commits_total{{{GROUP},{AT}}}"
COMMIT_FAILURES = f"keepfast_commit_failures_total{{{GROUP},{AT}}}"
COMMIT_HOLD = f'keepfast_hold{{hold="commit",{GROUP},{AT}}}'
SPOOLED = f"keepfast_spool_letters{{{AT}}}"
UP = f'keepfast_process_up{{process="0",{AT}}}'
OTHER_UP = f'keepfast_process_up{{process="1",{AT}}}'
NEXT = 'job="j",instance="next"'
"""Another process, after a deploy."""
NEXT_INFO = f'keepfast_app_info{{app="payments",{NEXT}}}'
NEXT_MISSED = f"keepfast_shutdown_timeouts_total{{{NEXT}}}"

WELL = {
    INFO: "1x1800",
    PROCESSED: "0+600x1800",
    UNPUBLISHED: "0x1800",
    DEAD_LETTERED: "0x1800",
    LAG: "90+1x5 90x1790",
    OLDEST: "0x1800",
    STUCK: "0x1800",
    AGE: "0.1x1800",
    ASSIGNED: "1x1800",
    SHUTDOWN: "0x1800",
    SHUTDOWN_TIMEOUT: "30x1800",
    MISSED: "0x1800",
    BREAKER: "0x1800",
    STORM: "0x1800",
    ABANDONED: "0x1800",
    STUCK_HANDLERS: "0x1800",
    PAUSE_AGE: "0x1800",
    NOT_FETCHED: "0x1800",
    ENDED: "0x1800",
    REPLACED: "0x1800",
    COMMITS: "0+60x1800",
    COMMIT_FAILURES: "0x1800",
    SPOOLED: "0x1800",
}
"""Ten records a second, a little lag, nothing wrong."""

ERROR_RATE, LETTER_RATE = "KeepfastHighErrorRate warning", "KeepfastHighDeadLetterRate warning"
LETTER, MANY_LETTERS = "KeepfastDeadLetters warning", "KeepfastDeadLetters critical"
LAGS, LAGS_BADLY = "KeepfastLag warning", "KeepfastLag critical"
PARTITION_LAG, OLD = "KeepfastHighPartitionLag warning", "KeepfastOldRecords warning"
STUCK_ALERT, REBALANCES = "KeepfastStuckPartitions critical", "KeepfastFrequentRebalances warning"
NOT_PUBLISHED, DOWN = "KeepfastDeadLettersNotPublished critical", "KeepfastDown critical"
SHUTDOWN_ALERT = "KeepfastShutdownTimeout warning"
BREAKER_ALERT, STORM_ALERT = "KeepfastBreakerOpen warning", "KeepfastStormGuard critical"
COMMITS_ALERT, ABANDONED_ALERT = "KeepfastCommitsFail critical", "KeepfastAbandonedThreads warning"
STUCK_HANDLERS_ALERT, PAUSE_ALERT = "KeepfastStuckHandlers warning", "KeepfastForgottenPause warning"
NOT_FETCHED_ALERT = "KeepfastPartitionsNotFetched critical"
CLIENT_ALERT = "KeepfastClientFailed critical"
SPOOL_ALERT = "KeepfastSpooledLetters warning"
PROCESS_ALERT = "KeepfastProcessDown critical"


@dataclass(frozen=True, slots=True)
class Story:
    series: Mapping[str, str | None]
    """Instead of those of WELL; None: there is no such series."""
    fires: set[str] = field(default_factory=set)
    at: str = "30m"
    before: Mapping[str, set[str]] = field(default_factory=dict)
    """What fires at other times."""


def every_minute(first: int, last: int, *alerts: str) -> dict[str, set[str]]:
    return {f"{minute}m": set(alerts) for minute in range(first, last + 1)}


STORIES = {
    "all is well": Story({}),
    "6 % errors": Story({ERRORS: "0+36x60"}, {ERROR_RATE}),
    "4 % errors": Story({ERRORS: "0+24x60"}),
    "errors while nothing gets through": Story({ERRORS: "0+1x60", PROCESSED: "5x60"}, {ERROR_RATE}),
    "6 % errors for two minutes": Story({ERRORS: "0x20 0+36x2 72x60"}),
    "2 % letters": Story({LETTERS: "0+12x60", DEAD_LETTERED: "0+12x60"}, {LETTER_RATE, MANY_LETTERS}),
    "half a percent letters": Story({LETTERS: "0+3x60", DEAD_LETTERED: "0+3x60"}, {MANY_LETTERS}),
    "one new letter": Story({DEAD_LETTERED: "0x25 1x60"}, {LETTER}),
    "ten new letters": Story({DEAD_LETTERED: "0x25 10x60"}, {LETTER}),
    "eleven new letters": Story({DEAD_LETTERED: "0x25 11x60"}, {MANY_LETTERS}),
    "letters before the first scrape": Story({DEAD_LETTERED: "_x25 500x60"}, {MANY_LETTERS}),
    "one letter after a restart": Story({DEAD_LETTERED: "50x25 0x2 1x60"}, {LETTER}),
    "letters of a quarter of an hour ago": Story({DEAD_LETTERED: "0x14 11x60"}),
    "an unresolved letter of yesterday": Story({UNRESOLVED: "1x60"}, {LETTER}),
    "ten unresolved letters": Story({UNRESOLVED: "10x60"}, {LETTER}),
    "eleven unresolved letters": Story({UNRESOLVED: "11x60"}, {MANY_LETTERS}),
    "all were resolved ten minutes ago": Story({UNRESOLVED: "500x19 0x60", DEAD_LETTERED: "0x15 500x60"}),
    "all but three were resolved": Story({UNRESOLVED: "500x19 3x60", DEAD_LETTERED: "0x15 500x60"}, {LETTER}),
    "the process that counts restarts for two minutes": Story(
        {UNRESOLVED: "2x27 _x2 2x60", DEAD_LETTERED: "2x27 _x2 0x60"}, {LETTER}, at="29m"
    ),
    "it restarts, and has none any more": Story({UNRESOLVED: "2x17 _x2 0x60", DEAD_LETTERED: "2x17 _x2 0x60"}),
    "another process counts after a rebalance": Story(
        {UNRESOLVED: "2x20 _x40", f"keepfast_dlq_unresolved{{{OWN},{NEXT}}}": "_x20 2x40"}, {LETTER}
    ),
    "nobody counts any more, and there are new letters": Story(
        {UNRESOLVED: "0x15 _x45", DEAD_LETTERED: "0x25 11x60"}, {MANY_LETTERS}
    ),
    "a lag of 100, financial": Story({LAG: "100x60"}),
    "a lag of 101, financial": Story({LAG: "101x60"}, {LAGS}),
    "16,000 records are finished above one that hangs": Story({LAG: "1x60", FINISHED_ABOVE: "16000x60"}),
    "a lag of 101 for two minutes": Story({LAG: "0x28 101x2"}),
    "a lag of 1001, financial": Story({LAG: "1001x60"}, {LAGS_BADLY}),
    "one partition of two lags": Story({OTHER_LAG: "10001x60"}, {LAGS_BADLY, PARTITION_LAG}),
    "letters become many and few again": Story(
        {UNRESOLVED: "3x19 20x9 3x9 0x60"},
        at="50m",
        before={
            **every_minute(1, 19, LETTER),
            **every_minute(20, 29, MANY_LETTERS),
            **every_minute(30, 39, LETTER),
            **every_minute(40, 49),
        },
    ),
    "letters are resolved while another process begins to count": Story(
        {UNRESOLVED: "20x19 stale", f"keepfast_dlq_unresolved{{{OWN},{NEXT}}}": "_x20 0x60"},
        before={**every_minute(1, 19, MANY_LETTERS), **every_minute(20, 29)},
    ),
    "the process with many new letters ends": Story(
        {DEAD_LETTERED: "_x20 11x3 _x60"}, {MANY_LETTERS}, at="27m", before={"19m": set(), "35m": set()}
    ),
    "a lag becomes large and small again": Story(
        {LAG: "200x19 2000x8 200x10 0x60"},
        at="50m",
        before={
            **every_minute(6, 24, LAGS),
            **every_minute(26, 28, LAGS_BADLY),
            **every_minute(29, 39, LAGS),
            **every_minute(40, 49),
        },
    ),
    "a lag is large, with a pause of a minute": Story({LAG: "2000x26 500 2000x60"}, {LAGS}),
    "a process starts with a large lag": Story(
        {LAG: "_x20 2000x60"}, {LAGS_BADLY}, before={**every_minute(20, 24), **every_minute(26, 29, LAGS_BADLY)}
    ),
    "a process that lags restarts": Story(
        {LAG: "2000x20 _x2 2000x60"}, {LAGS_BADLY}, before=every_minute(6, 29, LAGS_BADLY)
    ),
    "a record is 15 minutes old": Story({OLDEST: "900x60"}),
    "a record is older": Story({OLDEST: "0+60x60"}, {OLD}),
    "stuck": Story({STUCK: "0x9 1x60"}, {STUCK_ALERT}),
    "the loop does not turn": Story({AGE: "0+60x60"}, {STUCK_ALERT}),
    "7 % of letters cannot be published": Story({UNPUBLISHED: "0+3x60", LETTERS: "0+40x60"}, {LETTER_RATE}),
    "no letter can be published": Story({UNPUBLISHED: "0+1x60"}, {NOT_PUBLISHED}),
    "20 % of letters cannot be published": Story({UNPUBLISHED: "0+1x60", LETTERS: "0+4x60"}, {NOT_PUBLISHED}),
    "one rebalance": Story({ASSIGNED: "1x89 2x200"}, at="120m"),
    "two rebalances": Story({ASSIGNED: "1x89 2x9 3x200"}, {REBALANCES}, at="120m"),
    "two rebalances, long ago": Story({ASSIGNED: "1x9 2x9 3x200"}, at="90m"),
    "two rebalances in the first hour": Story({ASSIGNED: "1x9 2x9 3x200"}, at="40m"),
    "a deploy": Story(
        {ASSIGNED: "1x89 2x2 5x200", INFO: "1x89 _x200", NEXT_INFO: "_x89 1x200", MISSED: None}, at="120m"
    ),
    "a deploy, and rebalances that it does not explain": Story(
        {ASSIGNED: "1x79 2+1x40 42x200", INFO: "1x89 _x200", NEXT_INFO: "_x89 1x200", MISSED: None},
        {REBALANCES},
        at="120m",
    ),
    "a process that crashes and comes back, twice": Story(
        {ASSIGNED: "1x79 2x9 3x200", INFO: "1x79 _x1 1x8 _x1 1x200"}, {REBALANCES}, at="120m"
    ),
    "a handler hangs": Story({STUCK_HANDLERS: "0x20 1x60"}, {STUCK_HANDLERS_ALERT}),
    "a handler was slow": Story({STUCK_HANDLERS: "0x29 1x60"}),
    "an operator paused it eleven minutes ago": Story({PAUSE_AGE: "0x18 0+60x60"}, {PAUSE_ALERT}),
    "an operator paused it nine minutes ago": Story({PAUSE_AGE: "0x20 0+60x60"}),
    "records are not fetched": Story({NOT_FETCHED: "0x20 1x60"}, {NOT_FETCHED_ALERT}),
    "records were not fetched until the client was replaced": Story(
        {NOT_FETCHED: "0x20 1 0x60", REPLACED: "0x21 1x60"}
    ),
    "the client has failed for good, and the process runs": Story({ENDED: "0x20 1x60"}, {CLIENT_ALERT}),
    "the client is replaced three times": Story({REPLACED: "0x20 1 2 3x60"}, {CLIENT_ALERT}),
    "the client is replaced twice": Story({REPLACED: "0x20 1 2x60"}),
    "the breaker is open": Story({BREAKER: "0x20 1x60"}, {BREAKER_ALERT}),
    "the breaker was open for a moment": Story({BREAKER: "0x20 1 0x60"}),
    "the storm guard has tripped": Story({STORM: "0x29 1x60"}, {STORM_ALERT}),
    "commits are held": Story({COMMIT_HOLD: "_x20 1x60"}, {COMMITS_ALERT}),
    "most commits fail": Story({COMMIT_FAILURES: "0x9 0+40x60"}, {COMMITS_ALERT}),
    "a rebalance costs two commits": Story({COMMIT_FAILURES: "0x28 2x60", COMMITS: "0+1x60"}),
    "threads are lost": Story({ABANDONED: "0x9 2x60"}, {ABANDONED_ALERT}),
    "letters wait in the spool": Story({SPOOLED: "0x9 3x60"}, {SPOOL_ALERT}),
    "letters of another app wait in its spool": Story({'keepfast_spool_letters{job="x",instance="x"}': "3x60"}),
    "the next process counts a shutdown that took too long": Story(
        {NEXT_INFO: "_x25 1x60", NEXT_MISSED: "_x25 1x60"}, {SHUTDOWN_ALERT}
    ),
    "a shutdown that took too long, an hour ago": Story({NEXT_INFO: "_x25 1x60", NEXT_MISSED: "_x25 1x120"}, at="80m"),
    "it took its whole time to stop": Story({SHUTDOWN: "0x25 14 29", INFO: "1x27"}, {SHUTDOWN_ALERT}),
    "it stopped in good time": Story({SHUTDOWN: "0x25 14", INFO: "1x27"}),
    "both children answer": Story({UP: "1x60", OTHER_UP: "1x60"}),
    "a child does not answer": Story({UP: "1x60", OTHER_UP: "1x9 0x60"}, {PROCESS_ALERT}),
    "a child is restarted once": Story({UP: "1x60", OTHER_UP: "1x25 0 1x60"}),
    "a child hangs after each restart": Story(
        {UP: "1x60", OTHER_UP: "1x9 0 0 1 0 0 1 0 0 1 0 0 1 0 0 1 0 0 1 0 0 1x60"}, {PROCESS_ALERT}
    ),
    "a child takes two minutes to start": Story({UP: "_x20 1x60", OTHER_UP: "_x20 0x2 1x60"}),
    "a child of another app does not answer": Story({'keepfast_process_up{process="1",job="x",instance="x"}': "0x60"}),
    "the process is gone": Story(dict.fromkeys(WELL), {DOWN}),
    "the process is back after a minute": Story({INFO: "1x25 _x2 1x60"}),
}


def promtool(*arguments: str | Path) -> None:
    """Raises AssertionError with what it says if it disagrees."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def unit_test(story: Story, name: str) -> dict[str, Any]:
    series = {**WELL, **story.series}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items() if values is not None],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname, severity) (ALERTS{alertstate="firing"})',
                "eval_time": at,
                "exp_samples": [
                    {"labels": f'{{alertname="{alert.split()[0]}",severity="{alert.split()[1]}"}}', "value": 1}
                    for alert in sorted(fires)
                ],
            }
            for at, fires in {**story.before, story.at: story.fires}.items()
        ],
    }


def watched() -> Settings:
    return settings_of(app={"spool": "file:///spool"}, charge={**CHARGE, "alerts": {"lag_s": 900}, "breaker": True})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rules")
    (found / "rules.yml").write_text(rules_file(alerts_of(watched()), target="app:app"))
    return found


def test_promtool_finds_nothing_wrong_with_any_kind_of_rules(folder: Path) -> None:
    promtool("check", "rules", folder / "rules.yml")
    strange = settings_of(charge={**CHARGE, "group": 'a "b" {{{{ \\ }}}} ü'}, mail={"topics": "mail.outbox-1"})
    (folder / "strange.yml").write_text(rules_file(alerts_of(strange), target="app:app"))
    promtool("check", "rules", folder / "strange.yml")


@pytest.mark.parametrize("name", STORIES)
def test_exactly_these_alerts_fire(name: str, folder: Path) -> None:
    tests = {
        "rule_files": [str(folder / "rules.yml")],
        "evaluation_interval": "1m",
        "tests": [unit_test(STORIES[name], name)],
    }
    path = folder / f"{abs(hash(name))}.json"
    path.write_text(json.dumps(tests))
    promtool("test", "rules", path)


def test_every_alert_fires_in_some_story() -> None:
    alerts = {f"{one.name} {one.severity}" for group in alerts_of(watched()).values() for one in group}
    assert set().union(*(story.fires for story in STORIES.values())) == alerts
