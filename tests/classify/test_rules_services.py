"""gRPC, AWS, Redis and Kafka, as their own clients tell what went wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import botocore.config
import botocore.exceptions
import botocore.session
import confluent_kafka
import grpc
import grpc.aio
import kafka.errors
import pytest
import redis
from botocore import UNSIGNED
from redis.backoff import NoBackoff
from redis.retry import Retry

from keepfast.core import errors as ours
from tests.classify.errors import (
    DOWN,
    TIMED_OUT,
    HttpServer,
    caught,
    caught_async,
    found,
    listener,
    refused_port,
    verdict,
)

AWS = botocore.session.Session()  # one for all: it reads its description of each service once
NEVER = Retry(NoBackoff(), 0)
ROOT = Path(__file__).resolve().parents[2]
AUTH = ("non-retryable", "AUTH_REFUSED", False)
NOT_FOUND = ("non-retryable", "NOT_FOUND", False)
KAFKA_DOWN = ("retryable", "KAFKA_TRANSIENT", True)
KAFKA_PASSING = ("retryable", "KAFKA_TRANSIENT", False)
DB_DOWN = ("retryable", "DB_TRANSIENT_ERROR", True)
CONFLICT = ("retryable", "DB_TRANSIENT_ERROR", False)
RATE_LIMITED = ("retryable", "RATE_LIMITED", False)


class _Aborts(grpc.GenericRpcHandler):  # type: ignore[misc] # grpcio brings no types
    """Answers each call with the status that its method names."""

    def service(self, call: Any) -> Any:
        name = call.method.rpartition("/")[2]

        def abort(_: bytes, context: Any) -> None:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", "2500"),))
            context.abort(grpc.StatusCode[name], "as asked")

        return grpc.unary_unary_rpc_method_handler(abort)


@pytest.fixture(scope="module")
def grpc_address() -> Iterator[str]:
    with futures.ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, handlers=[_Aborts()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(0).wait(5)


def grpc_error(address: str, method: str, *, timeout_s: float = 30.0) -> BaseException:
    with grpc.insecure_channel(address) as channel:
        return caught(lambda: channel.unary_unary(f"/test/{method}")(b"", timeout=timeout_s))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UNAVAILABLE", ("retryable", "GRPC_UNAVAILABLE", True)),
        ("DEADLINE_EXCEEDED", TIMED_OUT),
        ("RESOURCE_EXHAUSTED", RATE_LIMITED),
        ("ABORTED", ("retryable", "GRPC_ABORTED", False)),
        ("INTERNAL", ("retryable", "GRPC_INTERNAL", False)),
        ("UNAUTHENTICATED", AUTH),
        ("PERMISSION_DENIED", AUTH),
        ("NOT_FOUND", NOT_FOUND),
        ("INVALID_ARGUMENT", ("non-retryable", "GRPC_INVALID_ARGUMENT", False)),
        ("FAILED_PRECONDITION", ("non-retryable", "GRPC_FAILED_PRECONDITION", False)),
    ],
)
def test_a_grpc_status(grpc_address: str, status: str, expected: tuple[str, str, bool]) -> None:
    assert verdict(grpc_error(grpc_address, status)) == expected


def test_every_grpc_status_has_a_rule(grpc_address: str) -> None:
    for status in grpc.StatusCode:
        if status is not grpc.StatusCode.OK:
            assert found(grpc_error(grpc_address, status.name)).rule != "unknown", status


def test_grpc_tells_how_long_to_wait(grpc_address: str) -> None:
    assert found(grpc_error(grpc_address, "RESOURCE_EXHAUSTED")).retry_after_s == 2.5


def test_grpc_over_asyncio_and_without_a_server(grpc_address: str) -> None:
    async def call(address: str, method: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            await channel.unary_unary(f"/test/{method}")(b"", timeout=30)

    error = caught_async(lambda: call(grpc_address, "NOT_FOUND"))
    assert isinstance(error, grpc.aio.AioRpcError)
    assert verdict(error) == NOT_FOUND
    error = caught_async(lambda: call(grpc_address, "UNAVAILABLE"))
    assert found(error).retry_after_s == 2.5
    with refused_port() as port:
        assert verdict(grpc_error(f"127.0.0.1:{port}", "X")) == ("retryable", "GRPC_UNAVAILABLE", True)


def aws_error(url: str, act: Callable[[Any], object], *, read_timeout_s: float = 30.0) -> BaseException:
    config = botocore.config.Config(
        signature_version=UNSIGNED, retries={"total_max_attempts": 1}, read_timeout=read_timeout_s, connect_timeout=30
    )
    client = AWS.create_client("s3", region_name="eu-central-1", endpoint_url=url, config=config)
    return caught(lambda: act(client))


def get(client: Any) -> object:
    return client.get_object(Bucket="bucket", Key="key")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("ThrottlingException", 400, RATE_LIMITED),
        ("ProvisionedThroughputExceededException", 400, RATE_LIMITED),
        ("SlowDown", 503, RATE_LIMITED),
        ("InternalError", 500, ("retryable", "SERVICE_UNAVAILABLE", True)),
        ("AccessDenied", 403, AUTH),
        ("NoSuchKey", 404, NOT_FOUND),
        ("TransactionConflictException", 400, ("retryable", "CONFLICT", False)),
        ("ConditionalCheckFailedException", 400, ("non-retryable", "DB_CONSTRAINT_VIOLATION", False)),
        ("NeverHeardOfIt", 400, ("non-retryable", "HTTP_400", False)),
        ("NeverHeardOfIt", 503, ("retryable", "HTTP_503", True)),
    ],
)
def test_an_aws_error_by_its_name_and_then_its_status(code: str, status: int, expected: tuple[str, str, bool]) -> None:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}
    assert verdict(botocore.exceptions.ClientError(response, "PutItem")) == expected


def test_aws_over_the_wire(server: HttpServer) -> None:
    throttled = aws_error(server.url("503-7"), get)
    assert isinstance(throttled, botocore.exceptions.ClientError)
    assert verdict(throttled) == ("retryable", "HTTP_503", True)
    assert found(throttled).retry_after_s == 7
    assert verdict(aws_error(server.url("silent"), get, read_timeout_s=0.2)) == TIMED_OUT
    assert verdict(aws_error(server.url("cut"), get)) == DOWN
    with refused_port() as port:
        assert verdict(aws_error(f"http://127.0.0.1:{port}", get)) == DOWN
    wrong = aws_error(server.url(""), lambda client: client.list_objects(Bucket="bucket", MaxKeys="x"))
    assert verdict(wrong) == ("non-retryable", "VALUE_INVALID", False)


@contextmanager
def redis_that_says(answer: bytes | None) -> Iterator[redis.Redis]:
    def talk(connection: socket.socket) -> None:
        while answer is not None and (asked := connection.recv(4096)):
            connection.sendall(answer * asked.count(b"*"))  # one for each command
        if answer is None:
            connection.recv(4096)

    with listener(talk) as port, redis.Redis(port=port, protocol=2, retry=NEVER, socket_timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", DB_DOWN),
        (b"-READONLY You can't write against a read only replica.\r\n", DB_DOWN),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", DB_DOWN),
        (b"-NOAUTH Authentication required.\r\n", AUTH),
        (b"-NOPERM this user has no permissions\r\n", AUTH),
        (
            b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
            ("retryable", "UNHANDLED_EXCEPTION", False),
        ),
        (None, DB_DOWN),
    ],
)
def test_what_redis_answers(answer: bytes | None, expected: tuple[str, str, bool]) -> None:
    with redis_that_says(answer) as client:
        assert verdict(caught(lambda: client.set("a", "b"))) == expected


def test_redis_that_is_silent_or_not_there() -> None:
    def wait(connection: socket.socket) -> None:
        connection.settimeout(2)
        while connection.recv(4096):
            pass

    with listener(wait) as port, redis.Redis(port=port, socket_timeout=0.1, retry=NEVER) as client:
        assert verdict(caught(client.ping)) == ("retryable", "DB_TIMEOUT", True)
    with refused_port() as port, redis.Redis(port=port, retry=NEVER) as client:
        assert verdict(caught(client.ping)) == DB_DOWN
    with redis_that_says(b"+OK\r\n") as client:
        assert verdict(caught(lambda: client.set("a", object()))) == ("non-retryable", "DB_DATA_INVALID", False)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [redis.WatchError(), redis.exceptions.LockError()])
def test_contention_in_redis_is_no_outage(error: BaseException) -> None:
    assert verdict(error) == CONFLICT


def kafka_error(name: str) -> confluent_kafka.KafkaException:
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_TRANSPORT", KAFKA_DOWN),
        ("_ALL_BROKERS_DOWN", KAFKA_DOWN),
        ("_MSG_TIMED_OUT", KAFKA_DOWN),
        ("NOT_ENOUGH_REPLICAS", KAFKA_DOWN),
        ("_QUEUE_FULL", KAFKA_PASSING),
        ("THROTTLING_QUOTA_EXCEEDED", KAFKA_PASSING),
        ("UNKNOWN_TOPIC_OR_PART", ("retryable", "KAFKA_UNKNOWN_TOPIC", False)),
        ("TOPIC_AUTHORIZATION_FAILED", AUTH),
        ("_AUTHENTICATION", AUTH),
        ("MSG_SIZE_TOO_LARGE", ("non-retryable", "KAFKA_TOO_LARGE", False)),
        ("INVALID_RECORD", ("non-retryable", "KAFKA_REFUSED", False)),
        ("_VALUE_SERIALIZATION", ("non-retryable", "SCHEMA_INVALID", False)),
        ("_FATAL", ("retryable", "KAFKA_FATAL", True)),
        ("_FAIL", ("retryable", "UNHANDLED_EXCEPTION", False)),
    ],
)
def test_an_error_of_confluent_kafka(name: str, expected: tuple[str, str, bool]) -> None:
    assert verdict(kafka_error(name)) == expected


def test_what_librdkafka_itself_calls_retriable_or_fatal() -> None:
    retriable = confluent_kafka.KafkaError(confluent_kafka.KafkaError._FAIL, "later", False, True)
    assert verdict(confluent_kafka.KafkaException(retriable)) == KAFKA_PASSING
    fatal = confluent_kafka.KafkaError(confluent_kafka.KafkaError._FAIL, "never", True)
    assert verdict(confluent_kafka.KafkaException(fatal)) == ("retryable", "KAFKA_FATAL", True)


def test_confluent_kafka_without_a_broker() -> None:
    with refused_port() as port:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": f"127.0.0.1:{port}", "queue.buffering.max.messages": 1, "log_level": 0}
        )
        assert verdict(caught(lambda: producer.list_topics(timeout=0.3))) == KAFKA_DOWN
        producer.produce("topic", b"1")
        error = caught(lambda: producer.produce("topic", b"2"))
        producer.purge()
        producer.flush(1)
    assert isinstance(error, BufferError)
    assert verdict(error) == KAFKA_PASSING


def test_kafka_python_without_a_broker() -> None:
    """In a process of its own: a producer that could not be made leaves its thread and its sockets behind."""
    script = """
import sys, kafka
from tests.classify.errors import caught, verdict
address = sys.argv[1]
print(*verdict(caught(lambda: kafka.KafkaProducer(bootstrap_servers=address, bootstrap_timeout_ms=200))))
"""
    with refused_port() as port:
        command = [sys.executable, "-W", "ignore", "-c", script, f"127.0.0.1:{port}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(part) for part in KAFKA_DOWN]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("KafkaConnectionError", KAFKA_DOWN),
        ("KafkaTimeoutError", KAFKA_DOWN),
        ("BrokerNotAvailableError", KAFKA_DOWN),
        ("RequestTimedOutError", KAFKA_DOWN),
        ("NotCoordinatorError", KAFKA_PASSING),
        ("UnknownTopicOrPartitionError", ("retryable", "KAFKA_UNKNOWN_TOPIC", False)),
        ("TopicAuthorizationFailedError", AUTH),
        ("SaslAuthenticationFailedError", AUTH),
        ("MessageSizeTooLargeError", ("non-retryable", "KAFKA_TOO_LARGE", False)),
        ("InvalidTopicError", ("non-retryable", "KAFKA_REFUSED", False)),
    ],
)
def test_an_error_of_kafka_python(name: str, expected: tuple[str, str, bool]) -> None:
    assert verdict(getattr(kafka.errors, name)()) == expected


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (ours.Fault.RETRY, KAFKA_DOWN),
        (ours.Fault.REBALANCING, KAFKA_PASSING),
        (ours.Fault.MISSING, ("retryable", "KAFKA_UNKNOWN_TOPIC", False)),
        (ours.Fault.REFUSED, AUTH),
        (ours.Fault.TOO_LARGE, ("non-retryable", "KAFKA_TOO_LARGE", False)),
        (ours.Fault.FATAL, ("retryable", "KAFKA_FATAL", True)),
    ],
)
def test_what_our_own_ports_raise_inside_a_handler(fault: ours.Fault, expected: tuple[str, str, bool]) -> None:
    assert verdict(ours.SinkError("could not send", fault=fault)) == expected


def test_every_fault_has_a_rule() -> None:
    assert all(found(ours.SinkError("", fault=fault)).rule != "unknown" for fault in ours.Fault)
