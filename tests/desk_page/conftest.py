"""A desk with its page on a real broker, served by uvicorn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from keepfast.desk.desk import Desk, DeskOptions
from keepfast.desk_page.processes import Processes
from keepfast.desk_page.server import DeskServer, DeskServerOptions
from keepfast.desk_page.tokens import RIGHTS, Role, TokenFile
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.members import connection


@dataclass(frozen=True, slots=True)
class ServedDesk:
    """A running desk, and tokens of each role."""

    desk: Desk
    server: DeskServer
    tokens: dict[Role, str]
    letters: str
    """The dead-letter topic."""
    clients: ExitStack

    @property
    def address(self) -> str:
        return self.server.address

    def api(self, role: Role | None = "admin") -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[role]}"} if role is not None else {}
        return httpx.Client(base_url=f"{self.address}/api/v1", headers=headers, timeout=60)

    def page(self, role: Role = "admin") -> httpx.Client:
        """Logged in."""
        client = self.anonymous()
        answer = client.post("/login", data={"token": self.tokens[role]})
        assert answer.status_code == 303, answer.text
        return client

    def anonymous(self) -> httpx.Client:
        headers = {"origin": self.address}
        return self.clients.enter_context(httpx.Client(base_url=self.address, headers=headers, timeout=60))


@pytest.fixture
def served(
    request: pytest.FixtureRequest, kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> Iterator[ServedDesk]:
    """A parameter is what reads values by their schema."""
    letters = topic(partitions=4)
    file = TokenFile(tmp_path / "tokens.json")
    roles: list[Role] = list(RIGHTS)
    tokens = {role: file.add(f"{role}-person", role) for role in roles}
    desk = Desk(connection(kafka.bootstrap), DeskOptions(topics=(letters,), by="test", desk_topic=f"{letters}.desk"))
    try:
        reach, reader = ("--brokers", kafka.bootstrap), getattr(request, "param", None)
        options = DeskServerOptions(port=0, tokens=file.path, command_options=reach, reader=reader)
        with DeskServer(desk, Processes(), options) as server, ExitStack() as clients:
            yield ServedDesk(desk, server, tokens, letters, clients)
    finally:
        desk.close()
