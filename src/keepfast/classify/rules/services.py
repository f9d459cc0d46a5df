"""Rules for gRPC, AWS and Kafka."""

from __future__ import annotations

from typing import Final

from keepfast.classify.rules.rule import Rule

_UNAVAILABLE = "§1.1.1 Service Unavailable"
_RATE = "§1.1.1 Rate Limiting"
_KAFKA = "§1.1.1 Kafka Transient Errors"
_AUTH = "§1.1.2 Authentication/Authorization"
_VALIDATION = "§1.1.2 Validation Errors"
_NOT_FOUND = "§1.1.2 Not Found"


def _as(scheme: str, names: str) -> tuple[str, ...]:
    return tuple(f"{scheme}:{name}" for name in names.split())


def _dotted(names: str) -> tuple[str, ...]:
    return tuple(names.split())


GRPC_RULES: Final = (
    Rule(
        "grpc:UNAVAILABLE",
        "retryable",
        name="grpc-unavailable",
        outage=True,
        standard=_UNAVAILABLE,
        why="The service is down or unreachable.",
    ),
    Rule(
        (*_as("grpc", "DEADLINE_EXCEEDED"), "grpc.FutureTimeoutError"),
        "retryable",
        name="grpc-timeout",
        code="TIMEOUT",
        outage=True,
        standard="§1.1.1 Timeout Errors",
        why="The service did not respond in time.",
    ),
    Rule(
        "grpc:RESOURCE_EXHAUSTED",
        "retryable",
        name="grpc-rate-limit",
        code="RATE_LIMITED",
        standard=_RATE,
        why="A quota is exhausted; the delay that the service requests is respected.",
    ),
    Rule(
        _as("grpc", "ABORTED CANCELLED"),
        "retryable",
        name="grpc-conflict",
        standard="§1.1.1",
        why="A conflict with a concurrent change, or an interrupted call: a retry may succeed.",
    ),
    Rule(
        _as("grpc", "UNAUTHENTICATED PERMISSION_DENIED"),
        "non-retryable",
        name="grpc-auth",
        code="AUTH_REFUSED",
        standard=_AUTH,
        why="The credentials or the permission are refused.",
    ),
    Rule(
        "grpc:NOT_FOUND",
        "not-found",
        name="grpc-not-found",
        code="NOT_FOUND",
        standard=_NOT_FOUND,
        why="Like HTTP 404.",
    ),
    Rule(
        _as("grpc", "INVALID_ARGUMENT OUT_OF_RANGE ALREADY_EXISTS FAILED_PRECONDITION UNIMPLEMENTED DATA_LOSS"),
        "non-retryable",
        name="grpc-refused",
        standard=_VALIDATION,
        why="The service rejected the call; by gRPC's definition it must not be repeated unchanged.",
    ),
    Rule(
        _as("grpc", "UNKNOWN INTERNAL"),
        "unknown",
        name="grpc-internal",
        why="Like HTTP 500: a temporary fault, or a bug that this record triggers.",
    ),
)

AWS_RULES: Final = (
    Rule(
        _as(
            "aws",
            "Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException"
            " TooManyRequestsException ProvisionedThroughputExceededException RequestLimitExceeded"
            " BandwidthLimitExceeded LimitExceededException SlowDown PriorRequestNotComplete EC2ThrottledException",
        ),
        "retryable",
        name="aws-throttling",
        code="RATE_LIMITED",
        standard=_RATE,
        why="AWS uses status 400 for this as well as 429 and 503, so the name takes precedence over the status.",
    ),
    Rule(
        _as("aws", "InternalError InternalFailure InternalServerError ServiceUnavailable ServiceUnavailableException"),
        "retryable",
        name="aws-unavailable",
        code="SERVICE_UNAVAILABLE",
        outage=True,
        standard=_UNAVAILABLE,
        why="AWS documents these as retryable.",
    ),
    Rule(
        _as("aws", "RequestTimeout RequestTimeoutException RequestExpired ExpiredToken ExpiredTokenException"),
        "retryable",
        name="aws-timeout",
        code="TIMEOUT",
        standard="§1.1.1 Timeout Errors",
        why="The request was too late, or its credentials have been renewed since.",
    ),
    Rule(
        _as("aws", "TransactionInProgressException TransactionConflictException TransactionCanceledException")
        + _as("aws", "ResourceInUseException ConflictException OperationAborted"),
        "retryable",
        name="aws-conflict",
        code="CONFLICT",
        standard="§1.1.1 Database Transient Errors",
        why="A concurrent change of the same resource.",
    ),
    Rule(
        _as("aws", "AccessDenied AccessDeniedException UnauthorizedOperation UnrecognizedClientException")
        + _as("aws", "InvalidClientTokenId SignatureDoesNotMatch InvalidAccessKeyId NotAuthorized"),
        "non-retryable",
        name="aws-auth",
        code="AUTH_REFUSED",
        standard=_AUTH,
        why="The credentials or the permission are refused.",
    ),
    Rule(
        _as("aws", "ResourceNotFoundException NoSuchKey NoSuchBucket NotFound QueueDoesNotExist")
        + _as("aws", "AWS.SimpleQueueService.NonExistentQueue"),
        "not-found",
        name="aws-not-found",
        code="NOT_FOUND",
        standard=_NOT_FOUND,
        why="Like HTTP 404.",
    ),
    Rule(
        "aws:ConditionalCheckFailedException",
        "non-retryable",
        name="aws-condition",
        code="DB_CONSTRAINT_VIOLATION",
        standard="§1.1.2 Business Logic Errors",
        why="The condition of the write is not met.",
    ),
    Rule(
        ("botocore.exceptions.ConnectionError", "botocore.exceptions.HTTPClientError"),
        "retryable",
        name="aws-network",
        code="NETWORK_ERROR",
        outage=True,
        standard="§1.1.1 Network Errors",
        why="The endpoint is unreachable, or the connection broke.",
    ),
    Rule(
        ("botocore.exceptions.ReadTimeoutError", "botocore.exceptions.ConnectTimeoutError"),
        "retryable",
        name="aws-no-answer",
        code="TIMEOUT",
        outage=True,
        standard="§1.1.1 Timeout Errors",
        why="The service did not respond in time.",
    ),
    Rule(
        "botocore.exceptions.ParamValidationError",
        "non-retryable",
        name="aws-parameters",
        code="VALUE_INVALID",
        standard=_VALIDATION,
        why="No valid request can be built from these values.",
    ),
)

KAFKA_RULES: Final = (
    Rule(
        _as("kafka", "_TRANSPORT _ALL_BROKERS_DOWN _RESOLVE _TIMED_OUT _MSG_TIMED_OUT _TIMED_OUT_QUEUE _WAIT_COORD")
        + _as("kafka", "BROKER_NOT_AVAILABLE LEADER_NOT_AVAILABLE NETWORK_EXCEPTION REQUEST_TIMED_OUT")
        + _as("kafka", "NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND KAFKA_STORAGE_ERROR")
        + _as("fault", "retry")
        + _dotted("kafka.errors.KafkaConnectionError kafka.errors.KafkaTimeoutError"),
        "retryable",
        name="kafka-down",
        code="KAFKA_TRANSIENT",
        outage=True,
        standard=_KAFKA,
        why="A broker is unavailable, or too few replicas respond.",
    ),
    Rule(
        (*_as("kafka", "retriable _QUEUE_FULL THROTTLING_QUOTA_EXCEEDED"), "builtins.BufferError", "fault:rebalancing"),
        "retryable",
        name="kafka-passing",
        code="KAFKA_TRANSIENT",
        standard=_KAFKA,
        why="Kafka calls it retriable, or this process sends faster than its producer's queue drains.",
    ),
    Rule(
        _as("kafka", "UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID _UNKNOWN_TOPIC")
        + _as("kafka", "_UNKNOWN_PARTITION")
        + _as("fault", "missing"),
        "retryable",
        name="kafka-unknown-topic",
        code="KAFKA_UNKNOWN_TOPIC",
        standard=_KAFKA,
        why="Brokers and clients do not know a new topic at once.",
    ),
    Rule(
        _as("kafka", "_AUTHENTICATION SASL_AUTHENTICATION_FAILED TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED")
        + _as("kafka", "CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED SECURITY_DISABLED")
        + _as("kafka", "DELEGATION_TOKEN_AUTHORIZATION_FAILED UNSUPPORTED_SASL_MECHANISM")
        + _as("fault", "refused"),
        "non-retryable",
        name="kafka-auth",
        code="AUTH_REFUSED",
        standard=_AUTH,
        why="The login or the permission is refused.",
    ),
    Rule(
        _as("kafka", "MSG_SIZE_TOO_LARGE MESSAGE_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE") + _as("fault", "too_large"),
        "non-retryable",
        name="kafka-too-large",
        code="KAFKA_TOO_LARGE",
        standard=_VALIDATION,
        why="The record does not become smaller.",
    ),
    Rule(
        _as("kafka", "INVALID_RECORD INVALID_MSG_SIZE TOPIC_EXCEPTION INVALID_TOPIC INVALID_TIMESTAMP POLICY_VIOLATION")
        + _as(
            "kafka", "_INVALID_ARG UNSUPPORTED_VERSION UNSUPPORTED_FOR_MESSAGE_FORMAT INVALID_CONFIG INVALID_REQUEST"
        ),
        "non-retryable",
        name="kafka-refused",
        code="KAFKA_REFUSED",
        standard=_VALIDATION,
        why="Kafka rejects it unchanged.",
    ),
    Rule(
        _as("kafka", "_KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION _VALUE_DESERIALIZATION")
        + _dotted("confluent_kafka.serialization.SerializationError"),
        "non-retryable",
        name="kafka-serialization",
        code="SCHEMA_INVALID",
        standard="§1.1.2 Schema Errors",
        why="The value does not match its schema.",
    ),
    Rule(
        _as("kafka", "_FATAL _FENCED PRODUCER_FENCED INVALID_PRODUCER_EPOCH")
        + _as("fault", "fatal fenced out_of_range"),
        "retryable",
        name="kafka-fatal",
        code="KAFKA_FATAL",
        outage=True,
        standard=_KAFKA,
        why="A client used by the handler has failed for good: not caused by a record; dead-lettering does not help.",
    ),
)

SERVICE_RULES: Final = (*GRPC_RULES, *AWS_RULES, *KAFKA_RULES)
