"""Looking at the thresholds of alerts, and at alerts that are left out."""

from __future__ import annotations

from typing import Any

from keepfast.audit.clause import Finding, Look, each, failed, not_applicable, passed, whole
from keepfast.audit.subject import Asked, Subject
from keepfast.core.alerts import LAG_OF_KIND, AlertPolicy, TopicKind

_STANDARD = AlertPolicy()


def raised(name: str, *limits: str) -> Look:
    """This alert is there, and none of these limits is above that of the documents."""

    def look(one: Asked) -> Finding:
        own = one.own.alerts
        loose = {
            limit: getattr(_STANDARD, limit) for limit in limits if getattr(own, limit) > getattr(_STANDARD, limit)
        }
        return _found(own, name, loose)

    return each(look)


def raised_by_the_app(name: str) -> Look:
    """This alert about the app as a whole is there: it is left out where every consumer leaves it out."""

    def look(subject: Subject) -> Finding:
        if subject.consumers and all(name in one.own.alerts.without for one in subject.consumers):
            return failed(f"{name} is left out.", "Take it out of alerts.without.")
        return passed(f"`keepfast monitoring` writes {name}.")

    return whole(look)


def lag_raised(kind: TopicKind) -> Look:
    """The same for topics of this kind."""

    def look(one: Asked) -> Finding:
        own = one.own.alerts
        if (own.kind or "other") != kind:
            return not_applicable(f"alerts.kind is {own.kind or 'other'}.")
        told = zip(("lag_warning", "lag_critical"), own.lag, LAG_OF_KIND[kind], strict=True)
        return _found(own, "KeepfastLag", {limit: most for limit, lag, most in told if lag > most})

    return each(look)


def _found(own: AlertPolicy, name: str, loose: dict[str, Any]) -> Finding:
    if name in own.without:
        return failed(f"{name} is left out.", "Take it out of alerts.without.")
    if loose:
        told = ", ".join(f"alerts.{limit} is {getattr(own, limit):g}" for limit in loose)
        most = " and ".join(f"{limit} {value:g}" for limit, value in loose.items())
        return failed(f"{told}: {name} comes late.", f"Leave it out: the default is {most}.")
    return passed(f"`keepfast monitoring` writes {name}.")
