"""Alerts as a file of rules for Prometheus. YAML, of which every text is written as JSON writes it: all of that is YAML
too, and nothing needs a library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from keepfast.monitoring.alerts import Alert


def rules_file(groups: Mapping[str, Sequence[Alert]], *, made_from: str) -> str:
    """The whole file."""
    return "\n".join(_lines(groups, made_from)) + "\n"


def _lines(groups: Mapping[str, Sequence[Alert]], made_from: str) -> Iterator[str]:
    target = " ".join(made_from.split())
    yield f"# Made by `keepfast monitoring {target}`. Change the settings in [alerts] and make it anew."
    yield "groups:"
    for name, alerts in groups.items():
        yield f"  - name: {_text(name)}"
        yield "    rules:" if alerts else "    rules: []"
        for alert in alerts:
            yield f"      - alert: {alert.name}"
            yield f"        expr: {_text(alert.expr)}"
            if alert.for_s:
                yield f"        for: {_seconds(alert.for_s)}"
            yield "        labels:"
            for label, value in (("severity", alert.severity), *alert.labels):
                yield f"          {label}: {_text(_literal(value))}"
            yield "        annotations:"
            yield f"          summary: {_text(_literal(alert.summary))}"
            yield f"          description: {_text(alert.description)}"
            yield f"          runbook_url: {_text(_literal(alert.link))}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> str:
    """Names of the user's that look like a template stay what they are."""
    return text.replace("{{", "{{ `{{` }}")


def _seconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms" if seconds % 1 else f"{seconds:.0f}s"
