"""Profiles of `keepfast check`: the documents that keepfast is based on, rule by rule, in our own words."""

from __future__ import annotations

from typing import Final

from keepfast.audit.profile import Profile
from keepfast.audit.rule import AuditRule
from neotool_common.profiles.fraud import FRAUD
from neotool_common.profiles.loop import LOOP
from neotool_common.profiles.pattern import PATTERN
from neotool_common.profiles.spring import SPRING
from neotool_common.profiles.standard import STANDARD

PROFILES: Final[tuple[Profile, ...]] = (STANDARD, LOOP, PATTERN, FRAUD, SPRING)
RULES: Final[tuple[AuditRule, ...]] = tuple(rule for profile in PROFILES for rule in profile.rules)
