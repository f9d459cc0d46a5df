"""The conformance suite's tests, on the real client and a real broker: a sink delivers."""

from tests.conformance.test_a_sink_delivers import *  # noqa: F403
