"""A client of the control API of a running app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import click
import msgspec

from keepfast.cli.connection import dev_broker, settings_for
from keepfast.core.errors import ConfigError, ControlRefused, StartError
from keepfast.http.client import fetch
from keepfast.http.server import UNIX
from keepfast.redact.urls import shown
from keepfast.telemetry.state import CommandDone, Problem, SeekResult

if TYPE_CHECKING:
    from keepfast.engine.seeks import SeekTarget

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")

EVERYWHERE = ("0.0.0.0", "::", "")
REPLY_TIMEOUT_S, SEEK_TIMEOUT_S = 10.0, 300.0


def control_options(command: F) -> F:
    """Add the options --app, --url and --debug."""
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option(
            "--url",
            metavar="http://HOST:PORT[/PATH]",
            help="The address of the app's health server, or where app.asgi is mounted.",
        ),
        click.option(
            "--app", "target", metavar="MODULE:APP", help="Read port and token from the settings of this app."
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ControlClient:
    """One running app, or the supervisor of several processes.

    Requests raise StartError if nothing answers, ConfigError if the token is missing or wrong, and ControlRefused.
    """

    url: str
    token: str = ""

    @classmethod
    def of(cls, target: str | None, url: str | None) -> ControlClient:
        """From --url, the environment, a running `keepfast dev`, or the settings of an app."""
        settings = settings_for(target)
        token = settings.control.token
        host, port = settings.health.host, settings.health.port
        if url is None:  # with an origin, only a `keepfast dev` of this folder counts
            near = dev_broker(target, settings.origins.get("health.port") or "default", choose="--app or --url")
            if near is not None and near.health_port:
                return cls(f"http://127.0.0.1:{near.health_port}", near.token)
        if url is None and not host.startswith(UNIX) and port == 0:
            raise ConfigError("The app uses any free port (HEALTH_CHECK_PORT=0), see its log: pass it with --url.")
        address = host if host.startswith(UNIX) else f"http://{'127.0.0.1' if host in EVERYWHERE else host}:{port}"
        return cls((url or address).rstrip("/"), token.reveal() if token else "")

    def get(self, shape: type[S], *path: str) -> S:
        """Read a resource."""
        return self._request("GET", path, None, shape)

    def post(self, *path: str, **body: object) -> CommandDone:
        """Send a command; arguments that are None are left out."""
        content = {name: value for name, value in body.items() if value is not None}
        return self._request("POST", path, content, CommandDone)

    def seek(
        self, consumer: str, topic: str, partition: int, to: SeekTarget, *, plan: bool, by: str = "", why: str = ""
    ) -> SeekResult:
        """Move a partition, or with `plan` say what that would do. Waits until the seek has ended."""
        body = {"topic": topic, "partition": partition, "to": to, "plan": plan, "by": by, "why": why}
        return self._request("POST", ("consumers", consumer, "seek"), body, SeekResult, SEEK_TIMEOUT_S)

    def _request(
        self,
        method: str,
        path: tuple[str, ...],
        body: Mapping[str, object] | None,
        shape: type[S],
        timeout_s: float = REPLY_TIMEOUT_S,
    ) -> S:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token and method == "POST" else {}
        resource = "/api/" + "/".join(quote(part, safe="@") for part in path)
        try:
            answer = fetch(
                self.url,
                resource,
                method=method,
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout_s=timeout_s,
            )
        except OSError as error:
            raise StartError(
                f"No app answers at {shown(self.url)} ({error.strerror or error}). Check that it runs here with its"
                " health server enabled, or set its address with --url, --app or HEALTH_CHECK_PORT."
            ) from error
        try:
            if answer.status == HTTPStatus.OK:
                return msgspec.json.decode(answer.body, type=shape)
            problem = msgspec.json.decode(answer.body, type=Problem).error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StartError(
                f"The server at {shown(self.url)} is not a keepfast app, or runs another version."
            ) from error
        if answer.status == HTTPStatus.UNAUTHORIZED:
            raise ConfigError("The token is missing or wrong: set KEEPFAST_CONTROL_TOKEN to the app's token.")
        raise ConfigError(problem) if answer.status == HTTPStatus.FORBIDDEN else ControlRefused(problem)
