"""Translates kafka-python's errors: the kind of fault, and a message with the remedy."""

from __future__ import annotations

from typing import Final

from kafka import errors

from keepfast.core.errors import Fault, SinkError, SourceError
from keepfast.kafka.faults import OTHER_ASSIGNOR, REMEDIES

# By name, because not every version has every class. Errors in no list are treated as transient: retrying is harmless,
# giving up is not.
_NAMES: Final[dict[Fault, tuple[str, ...]]] = {
    Fault.REBALANCING: (
        "CommitFailedError",
        "FencedMemberEpochError",
        "IllegalGenerationError",
        "MemberIdRequiredError",
        "RebalanceInProgressError",
        "StaleMemberEpochError",
        "UnknownMemberIdError",
    ),
    Fault.FENCED: ("FencedInstanceIdError", "UnreleasedInstanceIdError"),
    Fault.REFUSED: (
        "AuthorizationError",
        "IllegalSaslStateError",
        "InvalidRecordError",
        "PolicyViolationError",
        "SaslAuthenticationFailedError",
        "SecurityDisabledError",
        "UnsupportedSaslMechanismError",
    ),
    Fault.MISSING: ("InvalidTopicError", "UnknownTopicIdError", "UnknownTopicOrPartitionError"),
    Fault.TOO_LARGE: (
        "InvalidCommitOffsetSizeError",
        "MessageSizeTooLargeError",
        "OffsetMetadataTooLargeError",
        "RecordListTooLargeError",
    ),
    Fault.OUT_OF_RANGE: ("LogTruncationError", "OffsetOutOfRangeError"),
    Fault.FATAL: (
        "CorruptRecordError",
        "IllegalArgumentError",
        "IllegalStateError",
        "InconsistentGroupProtocolError",
        "InvalidGroupIdError",
        "InvalidProducerEpochError",
        "InvalidSessionTimeoutError",
        "KafkaConfigurationError",
        "OutOfOrderSequenceNumberError",
        "ProducerFencedError",
        "UnsupportedCodecError",
        "UnsupportedForMessageFormatError",
        "UnsupportedVersionError",
    ),
}
_FAULTS: Final = {name: fault for fault, names in _NAMES.items() for name in names}


def fault_of(error: BaseException) -> Fault:
    """The kind of fault of an error. One that is not the library's own is fatal."""
    for kind in type(error).__mro__:
        if kind.__module__.startswith("kafka.") and kind.__name__ in _FAULTS:
            return _FAULTS[kind.__name__]
    return Fault.RETRY if isinstance(error, errors.KafkaError) else Fault.FATAL


def source_error(what: str, error: BaseException) -> SourceError:
    """`what` says which call failed: "commit orders[3]"."""
    fault = fault_of(error)
    return SourceError(_text(what, error, fault), fault=fault, code=type(error).__name__)


def sink_error(what: str, error: BaseException) -> SinkError:
    """`what` says which call failed: "send to orders.dlq"."""
    fault = fault_of(error)
    return SinkError(_text(what, error, fault), fault=fault, code=type(error).__name__)


def _text(what: str, error: BaseException, fault: Fault) -> str:
    text = f"Could not {what}: {str(error) or type(error).__name__}."
    inconsistent = isinstance(error, errors.InconsistentGroupProtocolError)
    remedy = OTHER_ASSIGNOR if inconsistent else REMEDIES.get(fault)
    return f"{text} {remedy}" if remedy else text
