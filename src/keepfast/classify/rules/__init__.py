"""The rules for exceptions, their error codes, and the readers that extract keys from an exception.

Rules and settings name errors by *keys*: `http:503`, `sqlstate:40P01`, `sqlite:FULL`,
`grpc:UNAVAILABLE`, `aws:SlowDown`, `kafka:_TRANSPORT`, `errno:ECONNREFUSED`, or a class as `module.Class`.
"""

from keepfast.classify.rules.codes import CODES
from keepfast.classify.rules.rule import Rule, RuleKind, normal_key, parse_rule
from keepfast.classify.rules.table import RULES

__all__ = ["CODES", "RULES", "Rule", "RuleKind", "normal_key", "parse_rule"]
