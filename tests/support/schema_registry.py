"""A schema registry for tests: an HTTP server with the part of Confluent's API that serializers, deserializers and
commands use. It can be away, slow, refuse credentials and answer with errors.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Entry:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    guid: str
    content: dict[str, Any]
    """`schema`, `schemaType`, `references`, as they were registered."""

    def full(self) -> dict[str, Any]:
        return {**self.content, "subject": self.subject, "version": self.version, "id": self.id, "guid": self.guid}


@dataclass
class SchemaRegistryServer:
    """`requests` are all that came, `status` answers everything with that error, `slow_s` delays each answer, `answers`
    are those to single paths (a status and its content, None for that of a proxy). `login` is what basic
    authentication must bring; with `token`, it gets that at /token, and all else needs it.
    """

    login: tuple[str, str] | None = None
    token: str | None = None
    status: int | None = None
    slow_s: float = 0.0
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    _entries: list[Entry] = field(default_factory=list)
    _levels: dict[str, str] = field(default_factory=dict)
    _server: ThreadingHTTPServer | None = None
    _port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        """Listen: the first time on a free port, then on the same one."""
        registry = self

        class Handler(_Handler):
            served = registry

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def down(self) -> None:
        """Connections are refused, and those that are open are closed."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    @contextmanager
    def away(self) -> Iterator[None]:
        self.down()
        try:
            yield
        finally:
            self.up()

    def __enter__(self) -> SchemaRegistryServer:
        self.up()
        return self

    def __exit__(self, *error: object) -> None:
        if self._server is not None:
            self.down()

    # -- what is registered

    def put(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Register by hand; returns the id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        content = {"schema": text, "schemaType": kind, "references": list(references)}
        return self._register(subject, content).id

    def set_level(self, subject: str, level: str) -> None:
        self._levels[subject] = level

    def _register(self, subject: str, content: dict[str, Any]) -> Entry:
        known = self._find(subject, content)
        if known is not None:
            return known
        same = next((one for one in self._entries if one.content == content), None)
        made = Entry(
            subject,
            len(self._of(subject)) + 1,
            same.id if same else len({one.id for one in self._entries}) + 1,
            same.guid if same else str(uuid.uuid4()),
            content,
        )
        self._entries.append(made)
        return made

    def _of(self, subject: str) -> list[Entry]:
        return [one for one in self._entries if one.subject == subject]

    def _find(self, subject: str, content: dict[str, Any]) -> Entry | None:
        return next((one for one in self._of(subject) if one.content["schema"] == content["schema"]), None)

    # -- the API

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:  # noqa: PLR0911, PLR0912 - a table
        content = {"schemaType": "AVRO", "references": []} | (body or {})
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "POST", ["token"] if self.token is not None:
                return 200, {"access_token": self.token, "token_type": "bearer", "expires_in": 3600}
            case "GET", ["schemas", "types"]:
                return 200, ["AVRO", "PROTOBUF", "JSON"]
            case "GET", ["schemas", "ids", number]:
                return _found([one.full() for one in self._entries if str(one.id) == number], 40403, "Schema not found")
            case "GET", ["schemas", "ids", number, "versions"]:
                places = [one for one in self._entries if str(one.id) == number]
                return 200, [{"subject": one.subject, "version": one.version} for one in places]
            case "GET", ["schemas", "guids", guid]:
                return _found([one.full() for one in self._entries if one.guid == guid], 40403, "Schema not found")
            case "GET", ["subjects"]:
                return 200, sorted({one.subject for one in self._entries})
            case "GET", ["subjects", subject, "versions"]:
                versions = [one.version for one in self._of(subject)]
                return (200, versions) if versions else _error(404, 40401, "Subject not found")
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                if not self._is_compatible(subject, content):
                    return _error(409, 409, "Schema being registered is incompatible with an earlier schema")
                return 200, self._register(subject, content).full()
            case "POST", ["subjects", subject]:
                known = self._find(subject, content)
                return (200, known.full()) if known else _error(404, 40403, "Schema not found")
            case "POST", ["compatibility", "subjects", subject, "versions", _]:
                if not self._of(subject):
                    return _error(404, 40401, "Subject not found")
                return 200, {"is_compatible": self._is_compatible(subject, content)}
            case "GET", ["config", subject]:
                level = self._levels.get(subject)
                return (
                    (200, {"compatibilityLevel": level}) if level else _error(404, 40408, "No config for the subject")
                )
            case "GET", ["config"]:
                return 200, {"compatibilityLevel": "BACKWARD"}
            case _:
                return 404, None

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        known = self._of(subject)
        if not known:
            return _error(404, 40401, "Subject not found")
        found = known[-1:] if version == "latest" else [one for one in known if str(one.version) == version]
        return _found([one.full() for one in found], 40402, "Version not found")

    def _is_compatible(self, subject: str, content: dict[str, Any]) -> bool:
        """BACKWARD, as far as tests need it: a field that an Avro record did not have needs a default."""
        known = self._of(subject)
        if not known or content["schemaType"] != "AVRO" or self._levels.get(subject) == "NONE":
            return True
        before = {one["name"]: one["type"] for one in json.loads(known[-1].content["schema"]).get("fields", ())}
        now = json.loads(content["schema"]).get("fields", ())
        return all("default" in one if one["name"] not in before else one["type"] == before[one["name"]] for one in now)


def _error(status: int, code: int, text: str) -> tuple[int, Any]:
    return status, {"error_code": code, "message": text}


def _found(entries: list[dict[str, Any]], code: int, text: str) -> tuple[int, Any]:
    return (200, entries[0]) if entries else _error(404, code, text)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    block_on_close = False

    def __init__(self, *given: Any) -> None:
        self._open: set[Any] = set()
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def server_close(self) -> None:
        super().server_close()
        for one in self._open:
            self.shutdown_request(one)


class _Handler(BaseHTTPRequestHandler):
    served: SchemaRegistryServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(size)
        path, served = urlsplit(self.path).path, self.served
        body = json.loads(data) if data and path != "/token" else None
        served.requests.append(f"{self.command} {path}")
        time.sleep(served.slow_s)
        wanted = None if served.login is None else _basic(served.login)
        if served.token is not None and path != "/token":
            wanted = f"Bearer {served.token}"
        if wanted is not None and self.headers.get("Authorization") != wanted:
            self._reply(401, {"error_code": 401, "message": "Unauthorized"})
        elif served.status is not None:
            self._reply(served.status, {"error_code": 50001, "message": "Error in the backend data store"})
        elif path in served.answers:
            self._reply(*served.answers[path])
        else:
            self._reply(*served.answer(self.command, path, body))

    def _reply(self, status: int, content: Any) -> None:
        data = b"<html>Not here</html>" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *given: Any) -> None:
        """Tests look at `requests`."""

    def handle(self) -> None:
        with suppress(OSError):  # closed by `down`
            super().handle()


def _basic(login: tuple[str, str]) -> str:
    return f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"


def message_class(name: str, fields: dict[str, str]) -> Any:
    """A class of Protobuf messages, as protoc generates it, in a pool of its own: there may be two of a name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    package, _, short = name.rpartition(".")
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{re.sub('[^a-z]', '_', name.lower())}.proto", package=package, syntax="proto3"
    )
    message = file.message_type.add(name=short)
    for number, (field_name, kind) in enumerate(fields.items(), start=1):
        message.field.add(
            name=field_name, number=number, type=getattr(kinds, f"TYPE_{kind.upper()}"), label=kinds.LABEL_OPTIONAL
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
