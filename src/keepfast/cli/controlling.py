"""A client of the control API of a running app, for commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import click
import msgspec

from keepfast.cli.where import settings_for
from keepfast.core.errors import ConfigError, KeepfastError, StartError
from keepfast.http.asking import ask
from keepfast.http.http import UNIX
from keepfast.telemetry.shapes import CommandDone, Problem

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")

EVERYWHERE = ("0.0.0.0", "::", "")
REPLY_TIMEOUT_S = 10.0


class ControlRefused(KeepfastError):
    """The app answered, and did not do it: no such consumer, nothing of it here, or its loop is stuck."""


def control_options(command: F) -> F:
    """--app, --url, --debug."""
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option("--url", metavar="http://HOST:PORT", help="Where the app serves health and metrics."),
        click.option(
            "--app", "target", metavar="MODULE:APP", help="Take port and token from the settings of this app."
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Control:
    """One running app, or the supervisor of several. Raises StartError if nobody answers, ConfigError if the token is
    missing or wrong, and Refused.
    """

    url: str
    token: str = ""

    @classmethod
    def of(cls, target: str | None, url: str | None) -> Control:
        """From the options, the settings of an app, or those of the environment."""
        settings = settings_for(target)
        token = settings.control.token
        host, port = settings.health.host, settings.health.port
        if url is None and not host.startswith(UNIX) and port == 0:
            raise ConfigError("The app serves on any free port (HEALTH_CHECK_PORT=0): its log says which; give --url.")
        where = host if host.startswith(UNIX) else f"http://{'127.0.0.1' if host in EVERYWHERE else host}:{port}"
        return cls((url or where).rstrip("/"), token.reveal() if token else "")

    def look(self, shape: type[S], *path: str) -> S:
        return self._ask("GET", path, None, shape)

    def tell(self, *path: str, **body: object) -> CommandDone:
        return self._ask("POST", path, {name: value for name, value in body.items() if value is not None}, CommandDone)

    def _ask(self, method: str, path: tuple[str, ...], body: Mapping[str, object] | None, shape: type[S]) -> S:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token and method == "POST" else {}
        where = "/api/" + "/".join(quote(part, safe="@") for part in path)
        try:
            answer = ask(
                self.url,
                where,
                method=method,
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout_s=REPLY_TIMEOUT_S,
            )
        except OSError as error:
            raise StartError(
                f"No app answers at {self.url} ({error.strerror or error}). Is it running here, and is its health"
                " switched on? Say where with --url, --app or HEALTH_CHECK_PORT."
            ) from error
        try:
            if answer.status == HTTPStatus.OK:
                return msgspec.json.decode(answer.body, type=shape)
            said = msgspec.json.decode(answer.body, type=Problem).error
        except msgspec.MsgspecError as error:
            raise StartError(f"What answers at {self.url} is not an app of keepfast, or of another version.") from error
        if answer.status == HTTPStatus.UNAUTHORIZED:
            raise ConfigError("The token is missing or wrong: set KEEPFAST_CONTROL_TOKEN to the one of the app.")
        raise ConfigError(said) if answer.status == HTTPStatus.FORBIDDEN else ControlRefused(said)
