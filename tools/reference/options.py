"""The options of `@app.consumer` in `keepfast.app.options`, as type checkers read them: from the declared settings."""

from __future__ import annotations

import dataclasses
from typing import Any

from keepfast.core.fields import Policy, fields_of
from keepfast.settings import catalogue
from keepfast.settings.catalogue import Section
from tools.reference.api import first_of_annotated

MODULE = "src/keepfast/app/options.py"
BEGIN, END = "    # Made from the settings by `make reference`; change those instead.\n", "    # Up to here.\n"


def with_options(module: str) -> str:
    """The text of the module with the options that there are now."""
    before, found, rest = module.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{MODULE} does not say where its options begin and end")
    return f"{before}{BEGIN}{options()}{END}{after}"


def options() -> str:
    own = {name: kind for policy in catalogue.CONSUMER.classes for name, kind in _types(policy).items()}
    del own["topics"], own["pattern"]  # the decorator takes them one by one
    sections = {one.name: _section(one, one.policy) for one in catalogue.SECTIONS if one.policy is not None}
    return "".join(f"    {name}: {kind}\n" for name, kind in (own | sections).items())


def _section(section: Section, policy: type[Policy]) -> str:
    """The policy, or what may stand in its place."""
    kinds = [policy.__name__]
    if section.shorthand is not None:
        named = _types(policy).get(section.shorthand, "")
        kinds.append(named if named.isidentifier() else "str")
    return " | ".join(kinds + ["bool"] * (section.switch is not None))


def _types(policy: Any) -> dict[str, str]:
    """The types of declared fields as they are written; without None where that means: left out."""
    written = {part.name: str(part.type) for part in dataclasses.fields(policy)}
    found = {}
    for field in fields_of(policy):
        in_code = getattr(field.kind, "in_code", None)
        text = in_code or first_of_annotated(written[field.name])
        found[field.name] = text.removesuffix(" | None") if field.accepts_none else text
    return found
