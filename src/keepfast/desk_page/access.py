"""What every request must pass: allowed host, rates, a session or a token, origin and CSRF token for changes.

The order: host name (against DNS rebinding), size, rate, identity, right. Every response gets the security headers.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from keepfast.desk_page.tokens import RIGHTS, DeskUser, Right, Tokens, digest

Network = IPv4Network | IPv6Network
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE: Final = "keepfast_desk"
API: Final = "/api/"
UNLIMITED: Final = ("/static/", "/login")
"""Paths that do not count as reads: files that a browser caches, and logins, which have a limit of their own."""
CLIENT_BITS_6: Final = 64
"""Of an IPv6 address: a client has a whole network of this size, and may change its address at will."""
SESSION_S: Final = 12 * 3600.0
MAX_SESSIONS: Final = 1_000
MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""A form may contain an edited record."""
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9.-]{1,253})|\[(?P<address>[0-9A-Fa-f:.]{2,45})\])(?::\d{1,5})?", re.ASCII)
_HOP = re.compile(
    r'"?(?:\[(?P<bracketed>[0-9A-Fa-f:.]{2,45})(?:%\w{1,16})?\](?::\d{1,5})?'
    r'|(?P<plain>[0-9.]{7,15}(?=:\d{1,5}"?$)|[0-9A-Fa-f:.]{2,45})(?:%\w{1,16}|:\d{1,5})?)"?',
    re.ASCII,
)

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types desk"
)
HEADERS: Final = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: with it, browsers send `Origin: null` with forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class Denied(Exception):
    """The request is refused. The text is shown to the client."""

    def __init__(self, status: int, text: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRate:
    """At most `burst` at once, and `per_minute` in the long run."""

    burst: int
    per_minute: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPolicy:
    """`hosts`: names that the Host header may have. `https`: served through a proxy with TLS, so cookies are Secure.
    `proxies`: networks of the proxies whose X-Forwarded-For is believed.
    """

    hosts: frozenset[str] = LOOPBACK_NAMES
    https: bool = False
    proxies: tuple[Network, ...] = ()
    reads: RequestRate = RequestRate(burst=240, per_minute=1_200)
    writes: RequestRate = RequestRate(burst=30, per_minute=60)
    logins: RequestRate = RequestRate(burst=5, per_minute=6)
    """Those with a wrong token, of one address."""
    reveals: RequestRate = RequestRate(burst=20, per_minute=30)


class RateLimiter:
    """Token buckets, one per key. Those not used for longest are dropped when there are too many."""

    MAX_KEYS: Final = 10_000

    def __init__(self, rate: RequestRate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """0 if it may pass; else the seconds to wait."""
        now, per_s = self._clock(), self._rate.per_minute / 60
        level, at = self._buckets.pop(key, (float(self._rate.burst), now))
        level = min(float(self._rate.burst), level + (now - at) * per_s)
        self._buckets[key] = level - (level >= 1), now
        if len(self._buckets) > self.MAX_KEYS:
            self._buckets.popitem(last=False)
        return 0.0 if level >= 1 else (1 - level) / per_s


@dataclass(frozen=True, slots=True)
class Session:
    """A login in a browser. It ends with its token, too."""

    token_sha256: str
    csrf: str
    expires_at: float


class Sessions:
    """Logins in memory: they end when the desk stops. Keys are hashes of the cookies."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens = tokens
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, token: str) -> str:
        """The value of the cookie for this token, which must be valid."""
        cookie = secrets.token_urlsafe(32)
        self._sessions[digest(cookie)] = Session(digest(token), secrets.token_urlsafe(32), self._clock() + SESSION_S)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie

    def end(self, cookie: str) -> None:
        self._sessions.pop(digest(cookie), None)

    def find(self, cookie: str) -> tuple[Session, DeskUser] | None:
        session = self._sessions.get(digest(cookie)) if cookie else None
        if session is None:
            return None
        identity = self._tokens.still_valid(session.token_sha256)
        if identity is None or self._clock() >= session.expires_at:
            self.end(cookie)
            return None
        return session, identity


class Access:
    """Decides about requests. One event loop."""

    def __init__(self, tokens: Tokens, policy: AccessPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self.tokens = tokens
        self.policy = policy
        self.sessions = Sessions(tokens, clock)
        self._reads = RateLimiter(policy.reads, clock)
        self._writes = RateLimiter(policy.writes, clock)
        self._logins = RateLimiter(policy.logins, clock)
        self._reveals = RateLimiter(policy.reveals, clock)

    # -- every request

    def admit(self, request: Request) -> None:
        """Host, announced size and rate. Raises Denied."""
        name = host_name(request.headers.get("host", ""))
        if name not in self.policy.hosts:
            raise Denied(
                HTTPStatus.MISDIRECTED_REQUEST,
                "The desk does not answer for this host name. Start it with --allow-host NAME to allow one.",
            )
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise Denied(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request may have at most {MAX_BODY_BYTES} bytes.")
        if not request.url.path.startswith(UNLIMITED):
            self._limit_reads(request)

    def _limit_reads(self, request: Request) -> None:
        """Count a request for its user, or else for its address: strangers never use up what users have."""
        try:
            key = f"user {self.identify(request, count=False).name}"
        except Denied:
            key = f"address {client_network(request, self.policy.proxies)}"
        _limit(self._reads, key)

    # -- who

    def identify(self, request: Request, *, count: bool = True) -> DeskUser:
        """By cookie for the page, by Bearer token for the API. Raises Denied. `count`: a wrong token counts as such."""
        if request.url.path.startswith(API):
            return self._bearer(request, count=count)
        found = self.sessions.find(request.cookies.get(COOKIE, ""))
        if found is None:
            raise Denied(HTTPStatus.UNAUTHORIZED, "Log in first.")
        return found[1]

    def _bearer(self, request: Request, *, count: bool) -> DeskUser:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Denied(HTTPStatus.UNAUTHORIZED, "Send a token of the desk: `Authorization: Bearer …`.")
        return self._identity(request, token.strip(), count=count)

    def _identity(self, request: Request, token: str, *, count: bool = True) -> DeskUser:
        """Raises Denied. A valid token is never made to wait: guessing 32 random bytes does not succeed, and behind a
        proxy that is not named, strangers have the address of everybody.
        """
        identity = self.tokens.identity(token)
        if identity is None:
            if count:
                _limit(self._logins, client_network(request, self.policy.proxies))
            raise Denied(HTTPStatus.UNAUTHORIZED, "The token is not valid.")
        return identity

    def log_in(self, request: Request, token: str) -> str:
        """The cookie of a new session. Raises Denied."""
        self.check_origin(request)
        self._identity(request, token)
        return self.sessions.begin(token)

    def log_out(self, request: Request) -> None:
        self.sessions.end(request.cookies.get(COOKIE, ""))

    def csrf(self, request: Request) -> str:
        """What forms of this session must send back; empty without a session."""
        found = self.sessions.find(request.cookies.get(COOKIE, ""))
        return found[0].csrf if found else ""

    # -- what

    def authorize(self, request: Request, right: Right) -> DeskUser:
        """The identity, if it has the right. Raises Denied."""
        identity = self.identify(request)
        if not identity.may(right):
            raise Denied(HTTPStatus.FORBIDDEN, f"The role {identity.role} may not do this; it takes {_lowest(right)}.")
        if right == "reveal":
            _limit(self._reveals, identity.name)
        return identity

    def authorize_change(self, request: Request, right: Right, csrf: str) -> DeskUser:
        """As `authorize`, for a change: from our own page with its CSRF token, or by Bearer."""
        identity = self.authorize(request, right)
        if not request.url.path.startswith(API):
            self.check_origin(request)
            if not hmac.compare_digest(self.csrf(request).encode(), csrf.encode("utf-8", "replace")):
                raise Denied(HTTPStatus.FORBIDDEN, "The form is outdated: load the page again.")
        _limit(self._writes, identity.name)
        return identity

    def check_origin(self, request: Request) -> None:
        """A form must come from a page of this desk. Raises Denied."""
        origin = request.headers.get("origin", "")
        site = request.headers.get("sec-fetch-site", "same-origin")
        scheme = "https" if self.policy.https else request.url.scheme
        if origin != f"{scheme}://{request.headers.get('host', '')}" or site != "same-origin":
            raise Denied(HTTPStatus.FORBIDDEN, "The request does not come from a page of this desk.")


def _limit(limiter: RateLimiter, key: str) -> None:
    wait_s = limiter.take(key)
    if wait_s:
        text = f"Too many requests; try again in {max(1, round(wait_s))} s."
        raise Denied(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_s=wait_s)


def _lowest(right: Right) -> str:
    return next(role for role, rights in RIGHTS.items() if right in rights)


def client_network(request: Request, proxies: Sequence[Network]) -> str:
    """The network that limits are for: the address of an IPv4 client, the /64 of an IPv6 client."""
    text = client_address(request, proxies)
    address = _address(text)
    return str(ip_network((address, CLIENT_BITS_6), strict=False)) if isinstance(address, IPv6Address) else text


def client_address(request: Request, proxies: Sequence[Network]) -> str:
    """The address of the client. Where the peer is a named proxy: the last one in X-Forwarded-For that is none. A hop
    that is not an address ends the search: who wrote the hops before it is unknown.
    """
    peer = request.client.host if request.client else ""
    address = _address(peer)
    for text in reversed(",".join(request.headers.getlist("x-forwarded-for")).split(",")):
        hop = _address(text)
        if hop is None or address is None or not any(address in network for network in proxies):
            break
        address = hop
    return peer if address is None else str(address)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """The address in a hop, also with a port, in brackets or with a zone; None if it is none."""
    found = _HOP.fullmatch(text.strip())
    try:
        address = ip_address(found["bracketed"] or found["plain"]) if found else None
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def host_name(host: str) -> str:
    """The name in a Host header, without the port; empty if it is not one."""
    found = _HOST.fullmatch(host)
    return (found["name"] or found["address"]).lower().rstrip(".") if found else ""


class AccessGate:
    """The outermost ASGI app: admits requests, bounds their bodies, adds headers."""

    def __init__(self, app: Asgi, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sending = _with_headers(scope, send)
        request = Request(scope)
        try:
            self._access.admit(request)
        except Denied as denied:
            await plain_refusal(request, denied)(scope, receive, sending)
            return
        await self._app(scope, _bounded(receive), sending)


def plain_refusal(request: Request, denied: Denied) -> Response:
    """As JSON for the API, else as text."""
    headers = {"retry-after": str(max(1, round(denied.retry_after_s)))} if denied.retry_after_s else {}
    if request.url.path.startswith(API):
        if denied.status == HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = "Bearer"
        return JSONResponse({"error": str(denied)}, denied.status, headers)
    return PlainTextResponse(str(denied), denied.status, headers)


def _bounded(receive: Receive) -> Receive:
    """Ends a body that is longer than announced, or sent in chunks without an end."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY_BYTES:
            raise Denied(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request may have at most {MAX_BODY_BYTES} bytes.")
        return message

    return bounded


def _with_headers(scope: Scope, send: Send) -> Send:
    static = scope["path"].startswith("/static/")

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            more = HEADERS | {"cache-control": "max-age=3600" if static else "no-store"}
            message["headers"] = [
                *message["headers"],
                *((name.encode(), value.encode()) for name, value in more.items() if name.encode() not in own),
            ]
        await send(message)

    return sending
