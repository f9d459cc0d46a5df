"""Alerts and a dashboard for an app, made from its settings and the catalogue of metrics."""

from __future__ import annotations

from holdfast.monitoring.alerts import Alert, alerts_of
from holdfast.monitoring.dashboard import dashboard_of
from holdfast.monitoring.files import planned
from holdfast.monitoring.rules import rules_file

__all__ = ["Alert", "alerts_of", "dashboard_of", "planned", "rules_file"]
