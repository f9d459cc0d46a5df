"""The conformance suite's tests, on the real client and a real broker: a source shares."""

from tests.conformance.test_a_source_shares import *  # noqa: F403
