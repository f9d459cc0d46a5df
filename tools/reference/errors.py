"""How errors are classified: codes and rules, from the tables that the engine uses."""

from __future__ import annotations

import click

from keepfast.classify.classification import RULES, Rule
from keepfast.classify.rules.codes import CODES
from keepfast.classify.rules.databases import DATABASE_RULES
from keepfast.classify.rules.http import HTTP_RULES
from keepfast.classify.rules.language import LANGUAGE_RULES
from keepfast.classify.rules.services import SERVICE_RULES
from keepfast.cli.explain import ExplainView, answer, as_text
from tools.reference.markdown import MADE, code, codes, fence, table

INTRODUCTION = """# Errors: codes and rules

Every exception of a handler is looked up in a table of rules. The rule says what becomes of the record (**kind**),
the code that stands in the dead letter, and whether it means that a downstream is down (**outage**, for the
[breaker](../concepts/guards.md)). `keepfast explain` answers for one error, with the rules of your app if you name
it:

{explained}
- `retryable`: retried by the retry policy, then dead-lettered
- `non-retryable`: dead-lettered at once
- `discard`: dropped, counted and logged
- `halt`: the app stops with exit code 4; the record comes again after the restart
- `not-found`: the setting `consumer.not_found` decides
- `unknown`: the setting `consumer.unknown_errors` decides, as for errors that no rule knows

Rules of your own are asked first: [how](../how-to/retry.md#what-an-error-means).
"""

EXAMPLE = "http:503"
GROUPS = (
    ("What handlers say, Python's own exceptions, validation", LANGUAGE_RULES),
    ("HTTP clients and statuses", HTTP_RULES),
    ("Databases", DATABASE_RULES),
    ("gRPC, AWS, Redis, Kafka and other services", SERVICE_RULES),
)


def page() -> str:
    known = [rule for _, rules in GROUPS for rule in rules]
    if known != list(RULES):
        raise ValueError("tools/reference/errors.py: the groups are not all rules; add the new one to GROUPS.")
    view = ExplainView()
    example = fence(
        f"$ keepfast explain {EXAMPLE}\n{click.unstyle(as_text(answer(EXAMPLE, view), view))}",
        "console",
    )
    parts = [
        MADE + INTRODUCTION.replace("{explained}", example),
        "## Codes\n",
        table(("code", "means"), ((code(name), text) for name, text in CODES.items())),
    ]
    parts.append("## Rules\n")
    for title, rules in GROUPS:
        parts += [f"### {title}\n", table(("errors", "kind", "code", "outage", "why"), map(_row, rules))]
    return "\n".join(parts)


def _row(rule: Rule) -> tuple[str, ...]:
    standard = f" ({rule.standard})" if rule.standard else ""
    return codes(rule.keys), rule.kind, code(rule.code), "yes" if rule.outage else "", f"{rule.why}{standard}"
