"""The conformance suite's tests, on the real client and a real broker: a source commits."""

from tests.conformance.test_a_source_commits import *  # noqa: F403
