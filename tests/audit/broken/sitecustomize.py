"""Found first on the path of a process that is to be broken: see `tests.audit.breaking`."""

from tests.audit.breaking import apply

apply()
