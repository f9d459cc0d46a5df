"""Checks of alert thresholds, and of disabled alerts."""

from __future__ import annotations

from typing import Any

from keepfast.audit.clause import Check, Finding, failed, not_applicable, passed, per_app, per_consumer
from keepfast.audit.subject import AuditedConsumer, Subject
from keepfast.core.alerts import LAG_OF_KIND, AlertPolicy, TopicKind

_STANDARD = AlertPolicy()


def alert_exists(name: str, *limits: str) -> Check:
    """This alert is enabled, and none of these limits exceeds that of the documents."""

    def check(one: AuditedConsumer) -> Finding:
        own = one.own.alerts
        loose = {
            limit: getattr(_STANDARD, limit) for limit in limits if getattr(own, limit) > getattr(_STANDARD, limit)
        }
        return _found(own, name, loose)

    return per_consumer(check)


def app_alert_exists(name: str) -> Check:
    """This app-wide alert is enabled: it is disabled only if every consumer disables it."""

    def check(subject: Subject) -> Finding:
        if subject.consumers and all(name in one.own.alerts.without for one in subject.consumers):
            return failed(f"{name} is disabled.", "Remove it from alerts.without.")
        return passed(f"`keepfast monitoring` writes {name}.")

    return per_app(check)


def lag_alert_exists(kind: TopicKind) -> Check:
    """The lag alert is enabled for topics of this kind, and its limits do not exceed those of the documents."""

    def check(one: AuditedConsumer) -> Finding:
        own = one.own.alerts
        if (own.kind or "other") != kind:
            return not_applicable(f"alerts.kind is {own.kind or 'other'}.")
        limits = zip(("lag_warning", "lag_critical"), own.lag, LAG_OF_KIND[kind], strict=True)
        return _found(own, "KeepfastLag", {limit: maximum for limit, lag, maximum in limits if lag > maximum})

    return per_consumer(check)


def _found(own: AlertPolicy, name: str, loose: dict[str, Any]) -> Finding:
    if name in own.without:
        return failed(f"{name} is disabled.", "Remove it from alerts.without.")
    if loose:
        values = ", ".join(f"alerts.{limit} is {getattr(own, limit):g}" for limit in loose)
        defaults = " and ".join(f"{limit} {value:g}" for limit, value in loose.items())
        return failed(f"{values}: {name} fires late.", f"Remove the setting: the default is {defaults}.")
    return passed(f"`keepfast monitoring` writes {name}.")
