"""Found first on the path of a process that is to be broken: see `profile_tests.breaking`."""

from profile_tests.breaking import apply

apply()
