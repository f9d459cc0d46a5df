"""Checks of alert thresholds, and of disabled alerts."""

from __future__ import annotations

from typing import Any

from keepfast.audit.rule import Check, Finding, failed, passed, per_app, per_consumer
from keepfast.audit.subject import AuditedConsumer, Subject
from keepfast.core.alerts import AlertPolicy

_DEFAULTS = AlertPolicy()


def alert_exists(name: str, *limits: str) -> Check:
    """Return a check that an alert is enabled, with none of these limits above its default."""

    def check(one: AuditedConsumer) -> Finding:
        own = one.own.alerts
        loose = {
            limit: getattr(_DEFAULTS, limit) for limit in limits if getattr(own, limit) > getattr(_DEFAULTS, limit)
        }
        return find_alert(own, name, loose)

    return per_consumer(check)


def app_alert_exists(name: str) -> Check:
    """Return a check that an app-wide alert is enabled: it is disabled only if every consumer disables it."""

    def check(subject: Subject) -> Finding:
        if subject.consumers and all(name in one.own.alerts.without for one in subject.consumers):
            return failed(f"{name} is disabled.", "Remove it from alerts.without.")
        return passed(f"`keepfast monitoring` writes {name}.")

    return per_app(check)


def find_alert(own: AlertPolicy, name: str, loose: dict[str, Any]) -> Finding:
    """Return the finding about an alert. `loose`: its limits that exceed their defaults."""
    if name in own.without:
        return failed(f"{name} is disabled.", "Remove it from alerts.without.")
    if loose:
        values = ", ".join(f"alerts.{limit} is {getattr(own, limit):g}" for limit in loose)
        defaults = " and ".join(f"{limit} {value:g}" for limit, value in loose.items())
        return failed(f"{values}: {name} fires late.", f"Remove the setting: the default is {defaults}.")
    return passed(f"`keepfast monitoring` writes {name}.")
