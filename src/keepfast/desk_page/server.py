"""Serves the desk with uvicorn: in the foreground, or on a thread beside something else."""

from __future__ import annotations

import asyncio
import getpass
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from keepfast.core.errors import ConfigError, StartError
from keepfast.desk.desk import Desk, DeskOptions
from keepfast.desk.letters import ValueReader
from keepfast.desk.run import Transform
from keepfast.desk.trials import Trier
from keepfast.desk_page.access import LOOPBACK_NAMES, Access, AccessPolicy, Network
from keepfast.desk_page.application import DeskApplication
from keepfast.desk_page.processes import Processes
from keepfast.desk_page.runs import DeskReplays
from keepfast.desk_page.screens import DeskBackend
from keepfast.desk_page.storage import Storage
from keepfast.desk_page.tokens import TokenFile, Tokens, new_token
from keepfast.kafka.config import Connection

DEFAULT_PORT: Final = 8484
START_S: Final = 15.0
REQUEST_TIMEOUT_S: Final = 15.0
"""For a complete request to arrive, from the connection or the last response on, however slowly it is sent; for a
response to be read after it was written; and for a full buffer of a response to be read while it is written.
"""
MAX_CONNECTIONS: Final = 400
"""Above this, the connection that has waited longest for its client is closed for a new one: for a complete request,
or for a response to be read.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskServerOptions:
    """`hosts`: further names that browsers may use. `proxies`: those whose X-Forwarded-For is believed.
    `tokens`: None: a token for this process alone. `archive`: where archives are written to. `transforms`: by name,
    those that replays may use. `trier`: tries today's handler. `command_options`: with these, the commands that the
    page shows reach the same cluster. `reader`: reads values by their registered schema.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    hosts: tuple[str, ...] = ()
    tokens: Path | None = None
    https: bool = False
    proxies: tuple[Network, ...] = ()
    archive: str = ""
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    trier: Trier | None = None
    command_options: tuple[str, ...] = ()
    reader: ValueReader | None = None

    @property
    def is_local(self) -> bool:
        return self.host in LOOPBACK_NAMES


class DeskServer:
    """Started when it is entered. `url` opens it, with the token of this process if there is one.

    `discover` finds the dead-letter topics now and then. Entering raises ConfigError and StartError. It does not close
    the desk.
    """

    def __init__(
        self,
        desk: Desk,
        processes: Processes,
        options: DeskServerOptions,
        *,
        discover: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._options = options
        self._session = None if options.tokens is not None and TokenFile(options.tokens).tokens() else new_token()
        if self._session is not None and not options.is_local:
            raise ConfigError(
                f"The desk would answer on {options.host} without stored tokens: make one with `keepfast desk token add"
                " NAME --role ROLE`, or leave out --host."
            )
        tokens = Tokens(
            TokenFile(options.tokens) if options.tokens is not None else None,
            session=(_user(), self._session) if self._session is not None else None,
        )
        hosts = LOOPBACK_NAMES | {options.host.lower()} | {one.lower() for one in options.hosts}
        access = Access(
            tokens, AccessPolicy(hosts=hosts - {"0.0.0.0", "::"}, https=options.https, proxies=options.proxies)
        )
        self._replays = DeskReplays(desk, options.transforms)
        storage = Storage(desk, options.archive)
        backend = DeskBackend(
            desk, processes, self._replays, access, storage, options.trier, options.command_options, options.reader
        )
        self.application = DeskApplication(backend, discover)
        self._socket: socket.socket | None = None
        self._port = options.port
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_local(self) -> bool:
        """Whether it answers on this host only."""
        return self._options.is_local

    @property
    def token(self) -> str:
        """The token of this process; empty if there are stored ones."""
        return self._session or ""

    @property
    def address(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._options.host, self._options.host)
        return f"http://{host}:{self._port}"

    @property
    def url(self) -> str:
        """With the token in the fragment, which no server sees."""
        return f"{self.address}/login#token={self._session}" if self._session else self.address

    def bind(self) -> None:
        """Raises StartError if the port is taken."""
        family = socket.AF_INET6 if ":" in self._options.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self._options.host, self._options.port))
        except OSError as error:
            bound.close()
            where = f"{self._options.host}:{self._options.port}"
            raise StartError(
                f"The desk cannot listen on {where} ({error.strerror}): choose another with --port."
            ) from error
        self._socket, self._port = bound, bound.getsockname()[1]

    def serve(self) -> None:
        """Until a signal comes. On the main thread."""
        if self._socket is None:
            self.bind()
        assert self._socket is not None
        uvicorn.Server(self._config()).run(sockets=[self._socket])
        self._replays.close()

    def __enter__(self) -> Self:
        self.bind()
        assert self._socket is not None
        self._server = server = uvicorn.Server(self._config())
        sockets = [self._socket]
        self._thread = threading.Thread(target=lambda: server.run(sockets=sockets), name="keepfast-desk", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_S
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise StartError("The desk did not start; see the log.")
            time.sleep(0.02)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._replays.close()
        if self._server is not None and self._thread is not None:
            self._server.should_exit = self._server.force_exit = True
            self._thread.join(5)
        if self._socket is not None:
            self._socket.close()

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self.application.asgi,
            http=DeskConnection,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
            lifespan="off",
            limit_concurrency=500,
        )


class DeskConnection(H11Protocol):
    """A connection: uvicorn's, with deadlines for what its client has to do. One event loop."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._request_deadline = Deadline(self)
        self._reading_deadline = Deadline(self)
        """While the response fills its buffer. Another request, sent without reading, does not end it."""

    @property
    def _is_arriving(self) -> bool:
        """Whether no request is complete that has no response yet."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is None or cycle.response_complete or cycle.more_body

    @property
    def _waits_for_client(self) -> bool:
        return self._is_arriving or self._reading_deadline.is_set

    @property
    def _ends_at(self) -> float:
        """The first deadline; 0 if there is none."""
        deadlines = (self._request_deadline, self._reading_deadline)
        return min((one.at for one in deadlines if one.is_set), default=0.0)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        open_ones = [one for one in self.connections if isinstance(one, DeskConnection)]
        waiting = [one for one in open_ones if one._waits_for_client and one is not self]  # noqa: SLF001 - its own class
        if len(open_ones) > MAX_CONNECTIONS and waiting:
            oldest = min(waiting, key=lambda one: one._ends_at)  # noqa: SLF001
            self.connections.discard(oldest)  # at once: uvicorn counts them
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading_deadline.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading_deadline.stop()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._request_deadline.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._request_deadline.stop()
        self._reading_deadline.stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the deadline of a request if there is none, or end it if the request is complete."""
        if self._is_arriving:
            self._request_deadline.start()
        else:
            self._request_deadline.stop()


class Deadline:
    """Closes a connection REQUEST_TIMEOUT_S after `start`, unless `stop` is called before. One event loop."""

    def __init__(self, connection: DeskConnection) -> None:
        self._connection = connection
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    @property
    def at(self) -> float:
        """In the event loop's time; 0 if it is not set."""
        return self._timer.when() if self._timer is not None else 0.0

    def start(self) -> None:
        """Does nothing if it has started already."""
        if self._timer is None:
            self._timer = self._connection.loop.call_later(REQUEST_TIMEOUT_S, self._connection.transport.abort)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@contextmanager
def beside(
    connection: Connection,
    *,
    urls: Sequence[str],
    token: str,
    discover: Callable[[set[str]], Sequence[str]],
    trier: Trier | None = None,
    command_options: tuple[str, ...] = (),
) -> Iterator[DeskServer]:
    """A desk beside something else: any free port, a token for this process alone, an index in memory."""
    desk = Desk(connection, DeskOptions(topics=(), by=_user(), via="page"))
    try:
        processes = Processes(tuple(urls), token)
        options = DeskServerOptions(port=0, trier=trier, command_options=command_options)
        with DeskServer(desk, processes, options, discover=lambda: discover(desk.cluster.names())) as server:
            yield server
    finally:
        desk.close()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
