"""The rules of `keepfast check`: keepfast's own, and those of its profiles with the code and the tests behind them."""

from __future__ import annotations

from collections import Counter

from neotool_common.profiles import PROFILES, RULES
from profile_tests.breaks import BREAKS
from profile_tests.rules import KEPT_BY
from profile_tests.second_reading import FAILED_BEFORE, TAKEN_BACK

from keepfast.audit import OWN, AuditRule
from keepfast.audit.rule import UNSEEN
from tools.reference.markdown import MADE, code, codes, table

INTRODUCTION = """# Rules

`keepfast check app:app` judges an app by keepfast's own rules. `--profile NAME` judges it by a profile instead: a
document of rules that an installed package provides.

## keepfast's own rules
"""
OF_PROFILES = """
## Profiles

`packages/neotool-common` provides a profile for each of
[the documents that keepfast is based on](../decisions/README.md#the-documents-they-speak-of): every rule, in our own
words, with the file of `src/keepfast` that implements it and the tests that fail without it. Names of tests begin
below `tests/`, or with `profiles/` in `packages/neotool-common/profile_tests/`. Mutations of the code prove that
they fail (`make test-breaks`).

- **guaranteed**: by the engine, for every app.
- **not checkable**: an app does not show whether it complies; `keepfast check` says so and never calls it kept.
- **tried**: `keepfast check` classifies errors as the app would, its own rules included.
- **checked**: `keepfast check` reports whether an app complies, and what to do
  ([how](../decisions/0030-what-check-holds-an-app-to.md)).
"""


def page() -> str:
    own = ((code(rule.id), rule.level, rule.text) for rule in OWN.rules)
    parts = [MADE + INTRODUCTION, table(("rule", "level", "text"), own), OF_PROFILES, f"{_counts()}\n"]
    for profile in PROFILES:
        head = ("rule", "level", "text", "", "code", "tests")
        parts += [f"## {profile.title.capitalize()}\n", table(head, map(_row, profile.rules))]
    texts = {rule.id: rule.text for rule in RULES}
    found = ((texts[rule], code(rule), codes(tests), TAKEN_BACK.get(rule, "")) for rule, tests in FAILED_BEFORE.items())
    parts += [SECOND_READING, table(("text", "rule", "tests", "taken back"), found)]
    return "\n".join(parts)


SECOND_READING = """## What the second reading found

Rules that an earlier version of this table called kept although trials on a real broker showed otherwise, with the
tests that each has now, below `tests/` or in `examples/`. *Taken back* is what was taken out of the code of today to
see them fail.
"""


def _counts() -> str:
    ways = Counter(map(_way, RULES))
    trials = sum(map(len, BREAKS.values()))
    return (
        f"{len(RULES)} rules: {ways['guaranteed']} guaranteed, {ways['checked']} checked, {ways['tried']}"
        f" tried, {ways['not checkable']} not"
        f" checkable. The code behind them is tried by {trials} breaks of {len(BREAKS)} pieces of evidence"
        " (`make test-breaks`)."
    )


def _way(rule: AuditRule) -> str:
    if rule.check is None:
        return "guaranteed"
    if rule.check in UNSEEN:
        return "not checkable"
    return "tried" if rule.is_tried else "checked"


def _row(rule: AuditRule) -> tuple[str, ...]:
    kept = KEPT_BY[rule.id]
    return code(rule.id), rule.level, rule.text, _way(rule), code(kept.code), codes(kept.tests)
