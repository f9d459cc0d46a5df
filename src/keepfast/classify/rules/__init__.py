"""What keepfast knows about exceptions: the rules, the codes they give, and how an exception is read.

A rule names what it matches by *keys*, and so do users, in code and in settings: `http:503`, `sqlstate:40P01`,
`grpc:UNAVAILABLE`, `aws:SlowDown`, `kafka:_TRANSPORT`, `errno:ECONNREFUSED`, or a class as `module.Class`.
"""

from keepfast.classify.rules.codes import CODES
from keepfast.classify.rules.rule import Rule, Says, normal_key, parse_rule
from keepfast.classify.rules.table import RULES

__all__ = ["CODES", "RULES", "Rule", "Says", "normal_key", "parse_rule"]
