"""What is written, as text and as JSON; whether Prometheus agrees is tested beside this, with its own tools."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # comes with MkDocs, without types
from click.testing import CliRunner

from keepfast.cli import main
from keepfast.core.errors import ConfigError
from keepfast.monitoring import Alert, alerts_of, dashboard_of, monitoring_files, rules_file
from keepfast.monitoring.dashboard import queries_of
from keepfast.monitoring.promql import series
from keepfast.telemetry.catalogue import CATALOGUE, LAG_MAX
from tests.docs.blocks import ROOT
from tests.monitoring.apps import CHARGE, settings_of

SEVEN = {
    "KeepfastHighErrorRate",
    "KeepfastHighDeadLetterRate",
    "KeepfastHighPartitionLag",
    "KeepfastStuckPartitions",
    "KeepfastDeadLettersNotPublished",
    "KeepfastFrequentRebalances",
    "KeepfastShutdownTimeout",
}


def every(**consumers: Any) -> list[Alert]:
    return [alert for alerts in alerts_of(settings_of(**consumers)).values() for alert in alerts]


def limits(alerts: list[Alert], name: str) -> dict[str, str]:
    own = {
        alert.severity: alert.expr.partition(" <= ")[0].partition(" and on ")[0]
        for alert in alerts
        if alert.name == name
    }
    return {severity: expr.rpartition("> ")[2] for severity, expr in own.items()}


def test_there_are_the_seven_alerts_and_those_of_lag_and_letters() -> None:
    alerts = every()
    more = {"KeepfastDown", "KeepfastProcessDown", "KeepfastLag", "KeepfastDeadLetters"}
    assert {alert.name for alert in alerts} == SEVEN | more | {
        "KeepfastStormGuard",
        "KeepfastCommitsFail",
        "KeepfastAbandonedThreads",
        "KeepfastStuckHandlers",
        "KeepfastPartitionsNotFetched",
        "KeepfastForgottenPause",
        "KeepfastClientFailed",
    }
    shares = {alert.name: re.findall(r"> ([\d.]+) \*", alert.expr) for alert in alerts}
    assert shares["KeepfastHighErrorRate"] == ["0.05"]
    assert shares["KeepfastHighDeadLetterRate"] == ["0.01"]
    assert shares["KeepfastDeadLettersNotPublished"] == ["0.1"]
    assert limits(alerts, "KeepfastHighPartitionLag") == {"warning": "10000"}
    assert limits(alerts, "KeepfastFrequentRebalances")["warning"].startswith("1 + 4 * ")
    assert limits(alerts, "KeepfastDeadLetters") == {"warning": "0", "critical": "10"}


@pytest.mark.parametrize(
    ("options", "warning", "critical"),
    [
        ({"retry": "financial"}, "100", "1000"),
        ({"alerts": "notification"}, "500", "5000"),
        ({}, "1000", "10000"),
        ({"retry": "financial", "alerts": {"kind": "other"}}, "1000", "10000"),
        ({"alerts": {"kind": "financial", "lag_warning": 7}}, "7", "1000"),
    ],
)
def test_how_much_lag_is_too_much_depends_on_the_kind_of_topic(
    options: dict[str, Any], warning: str, critical: str
) -> None:
    alerts = every(charge={"topics": "orders.payment.v1", **options})
    assert limits(alerts, "KeepfastLag") == {"warning": warning, "critical": critical}


def test_the_age_of_records_is_an_alert_only_where_it_is_configured() -> None:
    alerts = every(charge={**CHARGE, "alerts": {"lag_s": 900}})
    assert limits(alerts, "KeepfastOldRecords") == {"warning": "900"}
    assert {alert.name for alert in alerts} - {alert.name for alert in every()} == {"KeepfastOldRecords"}


def test_thresholds_are_settings_of_each_consumer() -> None:
    settings = settings_of(
        environ={"KEEPFAST_CONSUMERS_MAIL_ALERTS_ERROR_SHARE": "0.5", "KEEPFAST_ALERTS_WITHOUT": "KeepfastDeadLetters"},
        charge=CHARGE,
        mail={"topics": "mail.outbox"},
    )
    groups = alerts_of(settings)
    shares = {
        name: [re.findall(r"> ([\d.]+) \*", one.expr) for one in alerts if one.name == "KeepfastHighErrorRate"]
        for name, alerts in groups.items()
    }
    assert shares == {
        "keepfast payments": [],
        "keepfast payments.charge": [["0.05"]],
        "keepfast payments.mail": [["0.5"]],
    }
    assert "KeepfastDeadLetters" not in {one.name for alerts in groups.values() for one in alerts}


def test_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as reported:
        settings_of(charge={**CHARGE, "alerts": {"lag_warning": 50_000, "for_s": 60}})
    assert "lag_warning (50,000) must not be above lag_critical (1,000)" in str(reported.value)
    with pytest.raises(ConfigError, match="'KeepfastNever', which is not an alert"):
        alerts_of(settings_of(charge={**CHARGE, "alerts": {"without": ["KeepfastNever"]}}))


def test_every_alert_links_to_a_section_of_the_runbook() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
    alerts = every(charge={**CHARGE, "alerts": {"runbook_url": "https://wiki.example/run"}})
    assert {alert.section for alert in alerts} - anchors == set()
    assert {alert.link.partition("#")[0] for alert in alerts} == {"https://wiki.example/run"}


def test_every_alert_leads_to_lines_of_the_log_that_exist() -> None:
    """Its section of the runbook names lines to look for, and every name of a line, there and in an alert, is one."""
    logged = {event for path in (ROOT / "docs" / "reference").glob("events.md") for event in logged_in(path)}
    reasons = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "reference" / "health.md").read_text(), re.MULTILINE))
    assert len(logged) > 100
    text = (ROOT / "docs" / "runbook.md").read_text()
    sections = {
        re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-"): body
        for heading, body in re.findall(r"^## (.+)\n([\s\S]*?)(?=^## |\Z)", text, re.MULTILINE)
    }
    alerts = every(app={"spool": "file:///spool"}, charge={**CHARGE, "alerts": {"lag_s": 900}, "breaker": True})
    for alert in alerts:
        named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", sections[alert.section]))
        assert named & logged, alert.section
        in_alert = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", alert.description)) - {"max_abandoned"}
        assert in_alert <= logged, alert.description
        assert in_alert <= named | reasons, f"{alert.name}: the section does not explain {in_alert - named}"


def logged_in(page: Path) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", page.read_text(), re.MULTILINE)


def test_all_queries_are_about_metrics_of_the_catalogue() -> None:
    known = {metric.family(domain="orders", entity="payment") for metric in CATALOGUE}
    known |= {"ALERTS"}  # a series of Prometheus itself
    known |= {f"{name}_{end}" for name in known for end in ("total", "bucket", "count", "sum")}
    functions = "sum|max|rate|increase|round|absent|histogram_quantile|max_over_time|last_over_time|by|on|and|or|unless"
    functions += "|count|scalar|vector|avg|avg_over_time|min_over_time|count_over_time"
    queries = [one.expr for one in every()] + [query for _, query in queries_of(dashboard_of(settings_of()))]
    for query in queries:
        plain = re.sub(r'\{[^}]*\}|\[[^\]]*\]|"[^"]*"|(?:by|on) \([^)]*\)', " ", query)
        words = set(re.findall(r"[a-zA-Z_]\w*", plain)) - set(functions.split("|")) - {"offset", "m", "h", "s"}
        assert words <= known, query


def test_a_label_that_a_metric_does_not_have_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="has no label topic"):
        series(LAG_MAX, topic="orders.payment.v1")


def test_names_of_the_users_stay_what_they_are() -> None:
    settings = settings_of(charge={**CHARGE, "group": 'a "b" {{ $x }}'.replace("{", "{{").replace("}", "}}")})
    text = rules_file(alerts_of(settings), target="app:app\nevil: 1")
    assert "\nevil" not in text
    assert 'group=\\"a \\\\\\"b\\\\\\" {{ $x }}\\"' in text
    assert '(a \\"b\\" {{ `{{` }} $x }})' in text


def test_the_file_is_yaml_with_every_alert_in_it() -> None:
    groups = alerts_of(settings_of(charge=CHARGE, mail={"topics": "mail.outbox"}))
    read = yaml.safe_load(rules_file(groups, target="app:app"))["groups"]
    assert [group["name"] for group in read] == list(groups)
    for group, alerts in zip(read, groups.values(), strict=True):
        for rule, alert in zip(group["rules"], alerts, strict=True):
            assert (rule["alert"], rule["expr"]) == (alert.name, alert.expr)
            assert rule["labels"] == {"severity": alert.severity, **dict(alert.labels)}
            assert rule["annotations"]["runbook_url"] == alert.link


def test_a_dashboard_has_a_row_for_the_app_its_consumers_and_their_topics() -> None:
    dashboard = dashboard_of(settings_of(charge=CHARGE, mail={"topics": ["mail.outbox", "mail.inbox"]}))
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert rows == [
        "payments: processes",
        "charge: group payments.charge",
        "charge: orders.payment.v1",
        "mail: group payments.mail",
        "mail: mail.outbox",
        "mail: mail.inbox",
    ]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places), "no panel lies on another"
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_the_command_writes_both_files_and_nothing_in_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "watched.py").write_text(
        "from keepfast import App\napp = App('payments')\n"
        "@app.consumer('orders.payment.v1', alerts='financial')\ndef charge(value: dict) -> None: ...\n"
    )
    dry = CliRunner().invoke(main, ["monitoring", "watched.py:app", "-o", "out", "--dry-run"])
    assert (dry.exit_code, (tmp_path / "out").exists()) == (0, False), dry.output
    done = CliRunner().invoke(main, ["monitoring", "watched.py:app", "-o", "out"])
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "payments.dashboard.json",
        "payments.rules.yml",
    ]
    assert json.loads((tmp_path / "out" / "payments.dashboard.json").read_text())["title"] == "keepfast: payments"
    assert "runbook_url" in done.output
    assert set(monitoring_files(settings_of(), target="x")) == {"payments.rules.yml", "payments.dashboard.json"}
