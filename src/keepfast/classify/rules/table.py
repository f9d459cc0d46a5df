"""All built-in rules, in the order of the reference. No two share a key, so the order has no effect."""

from __future__ import annotations

from typing import Final

from keepfast.classify.rules.databases import DATABASE_RULES
from keepfast.classify.rules.http import HTTP_RULES
from keepfast.classify.rules.language import LANGUAGE_RULES
from keepfast.classify.rules.rule import Rule
from keepfast.classify.rules.services import SERVICE_RULES

RULES: Final[tuple[Rule, ...]] = (*LANGUAGE_RULES, *HTTP_RULES, *DATABASE_RULES, *SERVICE_RULES)
