"""An S3-compatible server in this process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import s3fs
from moto.server import ThreadedMotoServer


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
