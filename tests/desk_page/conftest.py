"""A desk with its page on a real broker, served by uvicorn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from keepfast.desk.desk import Desk, DeskOptions
from keepfast.desk.letters import ValueReader
from keepfast.desk_page.processes import Processes
from keepfast.desk_page.server import DeskServer, DeskServerOptions
from keepfast.desk_page.tokens import RIGHTS, Role, TokenFile
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.members import connection

CONTROL_TOKEN: Final = "control-token-of-the-tests"


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


@contextmanager
def serving(
    bootstrap: str,
    letters: str,
    folder: Path,
    *urls: str,
    desk_topic: str = "",
    reader: ValueReader | None = None,
    **options: Any,
) -> Iterator[ServedDesk]:
    """A running desk of one dead-letter topic. `urls`: health servers of processes; `options`: of the server."""
    file = TokenFile(folder / "tokens.json")
    roles: list[Role] = list(RIGHTS)
    tokens = {role: file.add(f"{role}-person", role) for role in roles}
    desk = Desk(
        connection(bootstrap), DeskOptions(topics=(letters,), by="test", desk_topic=desk_topic or f"{letters}.desk")
    )
    try:
        made = DeskServerOptions(
            port=0, tokens=file.path, command_options=("--brokers", bootstrap), reader=reader, **options
        )
        processes = Processes(urls, CONTROL_TOKEN if urls else "")
        with DeskServer(desk, processes, made) as server, ExitStack() as clients:
            yield ServedDesk(desk, server, tokens, letters, clients)
    finally:
        desk.close()


@pytest.fixture
def served(
    request: pytest.FixtureRequest, kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> Iterator[ServedDesk]:
    """A parameter is what reads values by their schema."""
    with serving(kafka.bootstrap, topic(partitions=4), tmp_path, reader=getattr(request, "param", None)) as made:
        yield made
