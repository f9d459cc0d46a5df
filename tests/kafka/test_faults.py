"""From the client's errors to ours."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from keepfast.core.errors import Fault
from keepfast.kafka import faults


def test_every_name_in_the_lists_is_one_that_the_client_knows() -> None:
    names = [name for group in faults._NAMES.values() for name in group]
    assert [name for name in names if not hasattr(KafkaError, name)] == []
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (KafkaError._TIMED_OUT, Fault.RETRY),
        (KafkaError.NOT_COORDINATOR, Fault.RETRY),
        (KafkaError.ILLEGAL_GENERATION, Fault.REBALANCING),
        (KafkaError.REBALANCE_IN_PROGRESS, Fault.REBALANCING),
        (KafkaError.UNKNOWN_MEMBER_ID, Fault.REBALANCING),
        (KafkaError.STALE_MEMBER_EPOCH, Fault.REBALANCING),
        (KafkaError.FENCED_MEMBER_EPOCH, Fault.REBALANCING),
        (KafkaError.UNRELEASED_INSTANCE_ID, Fault.REBALANCING),
        (KafkaError.FENCED_INSTANCE_ID, Fault.FENCED),
        (KafkaError._AUTHENTICATION, Fault.REFUSED),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Fault.REFUSED),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Fault.MISSING),
        (KafkaError.MSG_SIZE_TOO_LARGE, Fault.TOO_LARGE),
        (KafkaError._AUTO_OFFSET_RESET, Fault.OUT_OF_RANGE),
        (KafkaError._FATAL, Fault.FATAL),
    ],
)
def test_an_error_becomes_what_is_to_be_done_about_it(code: int, fault: Fault) -> None:
    assert faults.fault_of(KafkaError(code)) is fault


def test_a_fatal_error_whose_text_says_fenced_is_fenced() -> None:
    text = "Fatal consumer error: Broker: Static consumer fenced by other consumer with same group.instance.id"
    assert faults.fault_of(KafkaError(KafkaError._FATAL, text)) is Fault.FENCED


@pytest.mark.parametrize(
    ("code", "lacks", "passing"),
    [
        (KafkaError.UNSUPPORTED_VERSION, True, False),
        (KafkaError._UNSUPPORTED_FEATURE, True, False),
        (KafkaError.UNRELEASED_INSTANCE_ID, False, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False, True),
        (KafkaError.GROUP_ID_NOT_FOUND, False, True),
        (KafkaError.FENCED_INSTANCE_ID, False, False),
        (KafkaError.UNSUPPORTED_ASSIGNOR, False, False),
    ],
)
def test_why_a_client_ended_under_kip_848_is_in_its_text(code: int, lacks: bool, passing: bool) -> None:
    text = f"Fatal error: {KafkaError(code).str()}: ConsumerGroupHeartbeat fatal error: {KafkaError(code).str()}"
    error = KafkaError(KafkaError._FATAL, text)
    assert faults.lacks_new_protocol(error) is lacks
    assert (faults.transient_end(error) is not None) is passing
    assert faults.lacks_new_protocol(KafkaError(code)) is False  # it has ended nothing
    assert faults.transient_end(KafkaError(code)) is None


def test_the_text_says_what_failed_and_what_to_do() -> None:
    error = faults.source_error("read orders[3]", KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    assert str(error).startswith("Could not read orders[3]: ")
    assert "Grant this user the right" in str(error)
    assert error.code == "TOPIC_AUTHORIZATION_FAILED"


def test_an_error_that_is_not_the_clients_own_is_fatal() -> None:
    error = faults.sink_error("send to orders", RuntimeError("Handle has been closed"))
    assert (error.fault, error.code) == (Fault.FATAL, "RuntimeError")
