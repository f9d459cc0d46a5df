"""An S3-compatible server in this process, and letters to spool."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from keepfast.core.records import Outgoing, Record
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.deadletters.spool.letters import SpooledLetter, spooled
from keepfast.deadletters.writing import write


@dataclass(frozen=True, slots=True)
class S3:
    """Its address, and what fsspec has to be told in the environment to find it."""

    endpoint: str

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "tester",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    @contextmanager
    def in_the_environment(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.variables.items():
                patch.setenv(name, value)
            yield

    def bucket(self) -> str:
        """A new bucket's name."""
        name = f"spool-{uuid.uuid4().hex[:10]}"
        self.files().mkdir(name)
        return name

    def files(self) -> s3fs.S3FileSystem:
        return s3fs.S3FileSystem(
            key="tester",
            secret="tester",
            endpoint_url=self.endpoint,
            use_listings_cache=False,
            skip_instance_cache=True,
        )


@contextmanager
def moto() -> Iterator[S3]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3(f"http://{host}:{port}")
    finally:
        server.stop()


def outgoing(number: int, *, topic: str = "orders.dlq", size: int = 20, stack: str = "") -> Outgoing:
    """A letter; one number, one letter."""
    letter = Letter(
        topic="orders",
        partition=0,
        offset=number,
        timestamp_ms=5,
        key=b"k%d" % number,
        value=b"v%d" % number + bytes(size),
        headers=(("h", b"1"), ("h", None)),
        group="g",
        error_type="ValueError",
        error_code="CODE",
        stack_trace=stack,
    )
    value, headers = write(letter, "envelope")
    return Outgoing(topic=topic, value=value, key=letter.key, headers=headers, partition=0)


def letter(number: int, *, at_ms: int | None = None, topic: str = "orders.dlq", size: int = 20) -> SpooledLetter:
    return spooled(outgoing(number, topic=topic, size=size), at_ms=1_000 + number if at_ms is None else at_ms)


def numbers(sent: list[Outgoing]) -> list[int]:
    """Which letters these are."""
    found = [read(Record(one.topic, 0, 0, one.key, one.value, tuple(one.headers), None)).offset for one in sent]
    return [offset for offset in found if offset is not None]
