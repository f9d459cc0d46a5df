"""The conformance suite's tests, on the real client and a real broker: a source reads."""

from tests.conformance.test_a_source_reads import *  # noqa: F403
