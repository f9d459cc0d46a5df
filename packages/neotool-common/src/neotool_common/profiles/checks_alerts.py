"""Checks of alerts whose limits a document sets."""

from __future__ import annotations

from keepfast.audit.checks_alerts import find_alert
from keepfast.audit.rule import Check, Finding, not_applicable, per_consumer
from keepfast.audit.subject import AuditedConsumer
from keepfast.core.alerts import LAG_OF_KIND, TopicKind


def lag_alert_exists(kind: TopicKind) -> Check:
    """Return a check that topics of this kind have the lag alert, with limits not above those of the documents."""

    def check(one: AuditedConsumer) -> Finding:
        own = one.own.alerts
        if (own.kind or "other") != kind:
            return not_applicable(f"alerts.kind is {own.kind or 'other'}.")
        limits = zip(("lag_warning", "lag_critical"), own.lag, LAG_OF_KIND[kind], strict=True)
        return find_alert(own, "KeepfastLag", {limit: maximum for limit, lag, maximum in limits if lag > maximum})

    return per_consumer(check)
