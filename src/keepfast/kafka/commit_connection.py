"""A connection of our own to the coordinator of a group, for its commits alone (decision 0059).

The client passes a commit through two of its threads on the way out and on the way back, which takes longer than the
broker does. A consumer that commits again and again sends the same request (OffsetCommit, as the same member) by
itself and waits for the answer on the socket.

It only ever confirms. Whatever is not the exact answer that says that all was stored (an error of a partition, a
connection that breaks, a coordinator that has moved) makes the client send the same commit, unless its partitions have
been given up by then, and what the client says counts. Where a connection is not possible, the client sends all of
them: see `NotPossible`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from keepfast.core.ports import Position
from keepfast.core.records import TopicPartition
from keepfast.kafka.places import ended

BROKER_TIMEOUT_S = 5.0
"""For each broker that is asked while one is opened, on a thread of its own."""
IDLE_S = 30.0
"""One that was idle for longer is not used again: what lies between may have forgotten it."""
USER_TIMEOUT_MS = 5_000
"""What was sent and is not acknowledged by the other machine for so long breaks the connection."""
LIFETIME_PART = 0.8
"""How much of the lifetime of a session is used, where the broker wants authentication to be repeated."""
ITERATIONS = range(4096, 1_000_001)
"""Of SCRAM, as the broker may ask for them."""
MAX_ANSWER_BYTES = 1024 * 1024
RESET: Final = struct.pack("ii", 1, 0)
"""For SO_LINGER: close with a reset, which drops what is not acknowledged."""

_OFFSET_COMMIT, _FIND_COORDINATOR, _SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 8, 10, 17, 18, 36
_FIND_VERSION, _HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 2, 1, 1
_KNOWN_SECURITY: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)
_SECURITY_NAME: Final = re.compile(r"(enable\.)?(ssl|sasl|security)\.|oauth_cb$")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PORT: Final = 9092
_SCRAM: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class NotPossible(Exception):
    """Stays so: security that is not known here, a broker that is too old, credentials that are refused."""


class ConnectError(Exception):
    """May be different the next time."""


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """Who commits, as the client describes it to producers of transactions. `epoch` is negative and `member_id` may be
    empty while it is no member.
    """

    group: str
    member_id: str
    epoch: int
    instance: str | None

    @classmethod
    def read(cls, metadata: bytes) -> GroupMembership | None:
        """From `consumer_group_metadata()`; None if its format is not this one."""
        head = b"CGMDv2:"
        at = len(head) + 4
        parts = metadata[at:].split(b"\0", 2)
        if not metadata.startswith(head) or len(parts) < 3:
            return None
        group, member_id, instance = parts  # the last one behind a byte that says whether there is none
        named = instance[1:].partition(b"\0")[0] if instance.startswith(b"\0") else None
        return cls(
            group=group.decode(errors="replace"),
            member_id=member_id.decode(errors="replace"),
            epoch=struct.unpack_from("=i", metadata, len(head))[0],
            instance=None if named is None else named.decode(errors="replace"),
        )


# -- the protocol: what is needed of it


def _varint(number: int) -> bytes:
    """Unsigned, seven bits a byte."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _compact(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return _varint(len(encoded) + 1) + encoded


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _read_text(answer: bytes, at: int) -> tuple[str, int]:
    """The text and where it ends; empty if it is null."""
    (length,) = struct.unpack_from(">h", answer, at)
    end = at + 2 + max(0, length)
    return answer[at + 2 : end].decode(), end


@dataclass(frozen=True, slots=True)
class CommitFrame:
    """`request`: what follows the correlation id. `confirmation`: what follows the throttle time in the one answer that
    confirms it.
    """

    request: bytes
    confirmation: bytes


class CommitConnection:
    """An open connection. Owner: the loop's thread, which never waits in it for longer than it says.

    At most one request is under way; `waiting` says whether one is.
    """

    def __init__(
        self,
        connected: socket.socket,
        membership: GroupMembership,
        client_id: str,
        *,
        version: int,
        lasts_s: float,
    ) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._poller = select.poll()
        self._poller.register(connected, select.POLLIN)
        self._key = struct.pack(">hh", _OFFSET_COMMIT, version)
        self._head = b"".join(
            (
                _text(client_id),
                b"\0",
                _compact(membership.group),
                struct.pack(">i", membership.epoch),
                _compact(membership.member_id),
                _compact(membership.instance),
            )
        )
        self._single: dict[TopicPartition, tuple[bytes, bytes]] = {}
        self._ends_at = time.monotonic() + lasts_s
        self._used_at = time.monotonic()
        self._number = b""
        self._expected: CommitFrame | None = None
        self._received = b""
        self._count = 0

    @property
    def waiting(self) -> bool:
        return self._expected is not None

    @property
    def fresh(self) -> bool:
        """Whether another request may be sent."""
        now = time.monotonic()
        return now - self._used_at < IDLE_S and now < self._ends_at

    def frame(self, positions: Sequence[Position]) -> CommitFrame:
        """A request, made ready to be sent."""
        if len(positions) != 1:
            return self._frame(positions)
        position = positions[0]
        parts = self._single.get(position.place)
        if parts is None:
            whole = self._frame(positions)
            until = len(whole.request) - len(_end_of(position)) - 2
            parts = self._single[position.place] = whole.request[:until], whole.confirmation
        return CommitFrame(parts[0] + _end_of(position) + b"\0\0", parts[1])

    def _frame(self, positions: Sequence[Position]) -> CommitFrame:
        topics: dict[str, list[Position]] = {}
        for position in positions:
            topics.setdefault(position.place.topic, []).append(position)
        request, confirmation = [self._head, _varint(len(topics) + 1)], [_varint(len(topics) + 1)]
        for topic, own in topics.items():
            named = _compact(topic) + _varint(len(own) + 1)
            request.append(named)
            confirmation.append(named)
            for position in own:
                number = struct.pack(">i", position.place.partition)
                request.append(number + _end_of(position))
                confirmation.append(number + b"\0\0\0")
            request.append(b"\0")
            confirmation.append(b"\0")
        request.append(b"\0")
        confirmation.append(b"\0")
        return CommitFrame(b"".join(request), b"".join(confirmation))

    def send(self, frame: CommitFrame) -> bool:
        """Whether it is on its way. If not, nothing of it will be read as a request."""
        if self._expected is not None:
            raise ValueError("a request is under way")
        self._count = self._count + 1 & 0x7FFFFFFF
        self._number = struct.pack(">i", self._count)
        request = self._key + self._number + frame.request
        try:
            sent = self._socket.send(struct.pack(">i", len(request)) + request)
        except OSError:
            return False
        self._used_at = time.monotonic()
        self._expected = frame
        return sent == len(request) + 4

    def answer(self, wait_s: float, *, timeout_s: float) -> bool | None:
        """Whether the request under way is confirmed; None: not known after wait_s. `timeout_s`: how old it may get
        without an answer. False is final: close it.
        """
        if self._expected is None:
            raise ValueError("no request is under way")
        if wait_s > 0 and not self._poller.poll(wait_s * 1000):
            return self._unanswered(timeout_s)
        judged = None
        while judged is None:
            try:
                received = self._socket.recv(65_536)
            except (BlockingIOError, ssl.SSLWantReadError):
                return self._unanswered(timeout_s)
            except OSError:
                return False
            if not received:
                return False
            self._received += received
            judged = self._judge(self._expected)
        return judged

    def _judge(self, expected: CommitFrame) -> bool | None:
        answer = self._received
        if len(answer) < 13 + len(expected.confirmation):
            complete = len(answer) >= 4 and len(answer) >= 4 + struct.unpack_from(">i", answer)[0]
            return False if complete else None
        self._received, self._expected = b"", None
        head = struct.pack(">i", 9 + len(expected.confirmation)) + self._number + b"\0"
        return answer.startswith(head) and answer[13:] == expected.confirmation  # between them: the throttle time

    def _unanswered(self, timeout_s: float) -> bool | None:
        return False if time.monotonic() - self._used_at > timeout_s else None

    def close(self) -> None:
        """Any number of times, on any thread. A request without an answer that has not reached the broker's machine
        is dropped: otherwise the system would keep on sending it.
        """
        with contextlib.suppress(OSError):
            if self._expected is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._socket.close()


def _end_of(position: Position) -> bytes:
    """What a request says of a position behind its number: without the epoch of its leader."""
    return struct.pack(">qi", position.offset, -1) + _compact(ended(position.metadata)) + b"\0"


# -- opening one: blocks, on a thread of its own


class _Handshake:
    """Requests and answers one by one, while a connection is made ready. `left_s` says how much time there still is,
    and raises ConnectError if there is none.
    """

    def __init__(
        self, host: str, port: int, client_id: str, tls: ssl.SSLContext | None, left_s: Callable[[], float]
    ) -> None:
        """Raises OSError, ConnectError."""
        plain = socket.create_connection((host, port), left_s())
        self._left_s = left_s
        self.address = host, port
        self.socket: socket.socket = plain
        self._client_id = client_id
        self._count = 0
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
            if tls is not None:
                plain.settimeout(left_s())
                self.socket = tls.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def ask(self, key: int, version: int, body: bytes = b"") -> bytes:
        """The answer behind its correlation id. Raises OSError, ConnectError."""
        self._count += 1
        request = struct.pack(">hhi", key, version, self._count) + _text(self._client_id) + body
        self.socket.settimeout(self._left_s())
        self.socket.sendall(struct.pack(">i", len(request)) + request)
        length, number = struct.unpack(">ii", self._read(8))
        if number != self._count or not 4 <= length <= MAX_ANSWER_BYTES:
            raise ConnectError("the broker's answer is not one to the request")
        return self._read(length - 4)

    def _read(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            self.socket.settimeout(self._left_s())
            more = self.socket.recv(count - len(received))
            if not more:
                raise ConnectError("the broker closed the connection")
            received += more
        return received


class Opener:
    """How connections are opened. Raises NotPossible if there can be none with these properties of the client."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        unknown = [name for name in properties if _SECURITY_NAME.match(name) and name not in _KNOWN_SECURITY]
        if unknown:
            raise NotPossible(f"{', '.join(sorted(unknown))}: only the client knows this")
        if not hasattr(select, "poll"):
            raise NotPossible("the system has no poll()")
        self._protocol = str(properties.get("security.protocol", "plaintext")).upper()
        if self._protocol not in _PROTOCOLS:
            raise NotPossible(f"only the client knows the security protocol {self._protocol}")
        self._brokers = str(properties["bootstrap.servers"]).split(",")
        self._client_id = str(properties.get("client.id", "rdkafka"))
        self._new_protocol = properties.get("group.protocol") == "consumer"
        self._sasl = _sasl_of(properties) if self._protocol.startswith("SASL_") else None
        self._tls = _tls_of(properties) if self._protocol.endswith("SSL") else None
        self._cancelled = False
        self._until = float("inf")

    def cancel(self) -> None:
        """On any thread: what is being opened is not needed any more."""
        self._cancelled = True

    def open(self, membership: GroupMembership) -> CommitConnection:
        """Blocks for about BROKER_TIMEOUT_S a broker at most, and for as long as their names are looked up. Raises
        ConnectError, NotPossible.
        """
        try:
            return self._open(membership)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError) as error:
            raise ConnectError(f"the broker closed the connection: {error}") from error
        except ssl.SSLError as error:
            raise NotPossible(f"TLS is refused: {error}") from error
        except (OSError, struct.error, ValueError, LookupError) as error:
            raise ConnectError(str(error) or type(error).__name__) from error

    def _left_s(self) -> float:
        left_s = self._until - time.monotonic()
        if self._cancelled or left_s <= 0:
            raise ConnectError("it took too long, or is not needed any more")
        return left_s

    def _open(self, membership: GroupMembership) -> CommitConnection:
        reached, version, lasts_s = self._reach_any()
        try:
            coordinator = self._coordinator(reached, membership.group)
            if coordinator != reached.address:
                reached.socket.close()
                reached, version, lasts_s = self._reach(*coordinator)
            return CommitConnection(reached.socket, membership, self._client_id, version=version, lasts_s=lasts_s)
        except BaseException:
            reached.socket.close()
            raise

    def _reach_any(self) -> tuple[_Handshake, int, float]:
        refused: Exception = ConnectError("there is no broker to ask")
        for broker in filter(None, map(str.strip, self._brokers)):
            try:
                return self._reach(*self._address(broker))
            except (OSError, ValueError, ConnectError) as error:
                refused = error
        raise refused

    def _address(self, broker: str) -> tuple[str, int]:
        """Raises ValueError."""
        scheme, _, address = broker.rpartition("://")
        if scheme and scheme.upper() != self._protocol:
            raise ValueError(f"{broker} is not reached by {self._protocol}")
        host, _, port = address.rpartition(":")
        if not host or address.endswith("]"):
            host, port = address, str(DEFAULT_PORT)
        return host.strip("[]"), int(port)

    def _reach(self, host: str, port: int) -> tuple[_Handshake, int, float]:
        """A connection on which the broker takes requests, its version of OffsetCommit, and how long it lasts."""
        self._until = time.monotonic() + BROKER_TIMEOUT_S
        handshake = _Handshake(host, port, self._client_id, self._tls, self._left_s)
        try:
            version = _version_of(handshake.ask(_API_VERSIONS, 0), new_protocol=self._new_protocol)
            return handshake, version, _log_in(handshake, *self._sasl) if self._sasl else float("inf")
        except BaseException:
            handshake.socket.close()
            raise

    @staticmethod
    def _coordinator(handshake: _Handshake, group: str) -> tuple[str, int]:
        answer = handshake.ask(_FIND_COORDINATOR, _FIND_VERSION, _text(group) + b"\0")
        (error,) = struct.unpack_from(">h", answer, 4)
        if error:
            raise ConnectError(f"the group has no coordinator now: error {error}")
        _, at = _read_text(answer, 6)
        host, at = _read_text(answer, at + 4)
        return host, struct.unpack_from(">i", answer, at)[0]


def _version_of(answer: bytes, *, new_protocol: bool) -> int:
    """Of OffsetCommit: the one that the client takes, too, or the one before it, without members of KIP-848."""
    error, count = struct.unpack_from(">hi", answer)
    known = {}
    for number in range(0 if error else count):
        key, least, most = struct.unpack_from(">hhh", answer, 6 + 6 * number)
        known[key] = range(least, most + 1)
    wanted = (9,) if new_protocol else (9, 8)
    version = next((one for one in wanted if one in known.get(_OFFSET_COMMIT, ())), None)
    if version is None or _FIND_VERSION not in known.get(_FIND_COORDINATOR, ()):
        raise NotPossible("the broker does not know the requests")
    return version


def _tls_of(properties: Mapping[str, Any]) -> ssl.SSLContext:
    authorities = properties.get("ssl.ca.location")
    folder = authorities if authorities and Path(authorities).is_dir() else None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if authorities:
            context.load_verify_locations(cafile=None if folder else authorities, capath=folder)
        else:
            context.load_default_certs()
        if (certificate := properties.get("ssl.certificate.location")) is not None:
            key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password or "")
    except (OSError, ValueError) as error:
        raise NotPossible(f"its certificates are only read by the client: {error}") from error
    if str(properties.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    return context


def _sasl_of(properties: Mapping[str, Any]) -> tuple[str, str, str]:
    mechanism = str(properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")))
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if mechanism not in ("PLAIN", *_SCRAM) or not isinstance(user, str) or not isinstance(password, str):
        raise NotPossible(f"only the client knows how to log in by {mechanism}")
    if not (user + password).isascii() and mechanism in _SCRAM:
        raise NotPossible("a name or password that is not ASCII has to be prepared for SCRAM")
    return mechanism, user, password


def _log_in(handshake: _Handshake, mechanism: str, user: str, password: str) -> float:
    """Returns how long it lasts. Raises NotPossible if it is refused: not tried again, or the account may be locked."""
    (error,) = struct.unpack_from(">h", handshake.ask(_SASL_HANDSHAKE, _HANDSHAKE_VERSION, _text(mechanism)))
    if error:
        raise NotPossible(f"the broker does not take {mechanism}: error {error}")
    lifetime_ms = 0

    def exchange(message: bytes) -> bytes:
        nonlocal lifetime_ms
        body = struct.pack(">i", len(message)) + message
        answer = handshake.ask(_SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, body)
        (error,) = struct.unpack_from(">h", answer)
        if error:
            raise NotPossible(f"the broker refused the login: error {error}")
        _, at = _read_text(answer, 2)
        (length,) = struct.unpack_from(">i", answer, at)
        end = at + 4 + max(0, length)
        (lifetime_ms,) = struct.unpack_from(">q", answer, end)
        return answer[at + 4 : end]

    if mechanism == "PLAIN":
        exchange(f"\0{user}\0{password}".encode())
    else:
        _scram(_SCRAM[mechanism], user, password, exchange)
    return LIFETIME_PART * lifetime_ms / 1000 if lifetime_ms > 0 else float("inf")


def _scram(digest: str, user: str, password: str, exchange: Callable[[bytes], bytes]) -> None:
    """RFC 5802, without channel binding. Raises NotPossible if the server does not know the password either."""
    nonce = secrets.token_urlsafe(24)
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    challenge = exchange(f"n,,{first}".encode()).decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    iterations = int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce) or iterations not in ITERATIONS:
        raise NotPossible("the broker's challenge is not one to this login")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), iterations)
    final = f"c=biws,r={fields['r']}"
    signed = f"{first},{challenge},{final}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True))).decode()
    verified = exchange(f"{final},p={proof}".encode())
    expected = base64.b64encode(hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest))
    if not hmac.compare_digest(verified.partition(b",")[0], b"v=" + expected):
        raise NotPossible("the broker did not prove that it knows the password")
