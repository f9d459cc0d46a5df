"""Alerts and a dashboard for an app, made from its settings and the catalogue of metrics."""

from __future__ import annotations

from keepfast.monitoring.alerts import Alert, alerts_of
from keepfast.monitoring.dashboard import dashboard_of
from keepfast.monitoring.files import planned
from keepfast.monitoring.rules import rules_file

__all__ = ["Alert", "alerts_of", "dashboard_of", "planned", "rules_file"]
