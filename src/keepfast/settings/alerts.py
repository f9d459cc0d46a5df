"""The settings of alerts: thresholds for `keepfast monitoring`. Part of the catalogue."""

from __future__ import annotations

from typing import Final

from keepfast.core.alerts import TOPIC_KINDS, AlertPolicy
from keepfast.settings.kinds import Choice, NameList, Number, Text, Whole
from keepfast.settings.shape import Section, Setting

_ALERTS = AlertPolicy()

ALERTS: Final = Section(
    "alerts",
    "What the rules that `keepfast monitoring` writes call too much. A running app does not read it.",
    (
        Setting(
            "kind",
            Choice(TOPIC_KINDS),
            _ALERTS.kind,
            "Decides how much lag is too much. Default: the retry profile, if it is one of these; else other.",
        ),
        Setting(
            "lag_warning",
            Whole(0),
            _ALERTS.lag_warning,
            "A warning above this lag. Default by kind: financial 100, notification 500, other 1000.",
        ),
        Setting(
            "lag_critical",
            Whole(0),
            _ALERTS.lag_critical,
            "Critical above this lag. Default by kind: financial 1000, notification 5000, other 10000.",
        ),
        Setting(
            "lag_s",
            Number(0),
            _ALERTS.lag_s,
            "A warning when a record is older than this and not finished. Default: nobody is told.",
        ),
        Setting("partition_lag", Whole(0), _ALERTS.partition_lag, "The lag of a partition that is high for any topic."),
        Setting("error_share", Number(0, 1), _ALERTS.error_share, "Failed attempts, as a share of processed records."),
        Setting("letter_share", Number(0, 1), _ALERTS.letter_share, "Dead letters, as a share of processed records."),
        Setting(
            "publish_failure_share",
            Number(0, 1),
            _ALERTS.publish_failure_share,
            "Failed attempts to publish a dead letter, as a share of all such attempts.",
        ),
        Setting("letters_warning", Whole(0), _ALERTS.letters_warning, "A warning above so many letters in a day."),
        Setting("letters_critical", Whole(0), _ALERTS.letters_critical, "Critical above so many letters in a day."),
        Setting("rebalances_per_hour", Whole(0), _ALERTS.rebalances_per_hour, "More than this is frequent."),
        Setting("for_s", Number(0, 86_400), _ALERTS.for_s, "How long it must be so before anybody is told."),
        Setting(
            "runbook_url",
            Text("the address of a page"),
            _ALERTS.runbook_url,
            "Where your people find the runbook; each alert links to its section there.",
        ),
        Setting("without", NameList(or_none=True), _ALERTS.without, "Names of alerts that are not to be written."),
    ),
    per_consumer=True,
    policy=AlertPolicy,
    shorthand="kind",
)
