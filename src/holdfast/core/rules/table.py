"""All built-in rules, in the order of the reference. No two share a key, so their order decides nothing."""

from __future__ import annotations

from typing import Final

from holdfast.core.rules.databases import DATABASE_RULES
from holdfast.core.rules.http import HTTP_RULES
from holdfast.core.rules.language import LANGUAGE_RULES
from holdfast.core.rules.rule import Rule
from holdfast.core.rules.services import SERVICE_RULES

RULES: Final[tuple[Rule, ...]] = (*LANGUAGE_RULES, *HTTP_RULES, *DATABASE_RULES, *SERVICE_RULES)
