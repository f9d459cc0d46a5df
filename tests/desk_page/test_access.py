"""Who may do what: hosts, tokens, sessions, origins, CSRF, rates, headers."""

from __future__ import annotations

import stat
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from keepfast.core.errors import ConfigError
from keepfast.desk_page.access import (
    COOKIE,
    CSP,
    SESSION_S,
    Access,
    AccessGate,
    AccessPolicy,
    Denied,
    RateLimiter,
    RequestRate,
    client_address,
    host_name,
    plain_refusal,
)
from keepfast.desk_page.screens import local
from keepfast.desk_page.tokens import RIGHTS, Right, Role, TokenFile, Tokens, digest, new_token

BASE = "http://127.0.0.1:8900"


class Bench:
    """An app with one page, one form and one API path behind the gate."""

    def __init__(self, folder: Path, **policy: Any) -> None:
        self.file = TokenFile(folder / "tokens.json")
        self.token = {role: self.file.add(role, role) for role in cast("list[Role]", list(RIGHTS))}
        self.now = 0.0
        self.access = Access(Tokens(self.file), AccessPolicy(**policy), lambda: self.now)
        self.written: list[str] = []

        async def page(request: Request) -> Response:
            return JSONResponse({"by": self.access.authorize(request, "read").name, "csrf": self.access.csrf(request)})

        async def log_in(request: Request) -> Response:
            response = Response(status_code=204)
            response.set_cookie(COOKIE, self.access.log_in(request, request.headers.get("x-token", "")))
            return response

        async def write(request: Request) -> Response:
            right = cast("Right", request.path_params["right"])
            form = await request.body()
            self.written.append(self.access.authorize_change(request, right, form.decode()).name)
            return Response(status_code=204)

        routes = [
            Route("/", page),
            Route("/login", log_in, methods=["POST"]),
            Route("/do/{right}", write, methods=["POST"]),
            Route("/api/v1/do/{right}", write, methods=["POST"]),
            Route("/api/v1/read", page),
        ]
        refused = cast("Callable[[Request, Exception], Response]", plain_refusal)
        app = Starlette(routes=routes, exception_handlers={Denied: refused})
        self.client = TestClient(AccessGate(app, self.access), base_url=BASE)

    def log_in(self, role: Role = "admin", **headers: str) -> int:
        return self.client.post("/login", headers={"x-token": self.token[role], "origin": BASE} | headers).status_code

    def csrf(self) -> str:
        return str(self.client.get("/").json()["csrf"])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:80:80", "[::1"])
def test_a_name_that_is_not_allowed_is_refused_before_anything_else(bench: Bench, host: str) -> None:
    answer = bench.client.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert bench.log_in(host=host) == 421


@pytest.mark.parametrize("host", ["localhost:8900", "127.0.0.1", "[::1]:8900", "LOCALHOST"])
def test_names_of_this_host_are_allowed(bench: Bench, host: str) -> None:
    assert bench.client.get("/", headers={"host": host}).status_code == 401


def test_a_page_needs_a_session_and_a_session_needs_a_token(bench: Bench) -> None:
    assert bench.client.get("/").status_code == 401
    assert bench.client.post("/login", headers={"x-token": "wrong", "origin": BASE}).status_code == 401
    assert bench.log_in("viewer") == 204
    assert bench.client.get("/").json()["by"] == "viewer"


def test_a_cookie_is_no_token_for_the_api_and_a_token_none_for_the_page(bench: Bench) -> None:
    bench.log_in("admin")
    assert bench.client.get("/api/v1/read").status_code == 401
    bearer = {"authorization": f"Bearer {bench.token['viewer']}"}
    assert bench.client.get("/api/v1/read", headers=bearer).json()["by"] == "viewer"
    bench.client.cookies.clear()
    assert bench.client.get("/", headers=bearer).status_code == 401


@pytest.mark.parametrize("role", list(RIGHTS))
@pytest.mark.parametrize("right", sorted(RIGHTS["admin"]))
def test_each_role_has_its_rights_and_no_others(bench: Bench, role: Role, right: Right) -> None:
    bearer = {"authorization": f"Bearer {bench.token[role]}"}
    expected = 204 if right in RIGHTS[role] else 403
    assert bench.client.post(f"/api/v1/do/{right}", headers=bearer).status_code == expected
    bench.log_in(role)
    page = bench.client.post(f"/do/{right}", content=bench.csrf(), headers={"origin": BASE})
    assert page.status_code == expected


def test_roles_are_ordered_and_only_admins_reveal_and_control() -> None:
    assert RIGHTS["viewer"] < RIGHTS["replayer"] < RIGHTS["admin"]
    assert RIGHTS["admin"] - RIGHTS["replayer"] == {"reveal", "try", "archive", "purge", "export", "control"}
    assert RIGHTS["viewer"] == {"read"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8900"},
        {"origin": BASE, "sec-fetch-site": "cross-site"},
        {"origin": BASE, "sec-fetch-site": "same-site"},
    ],
)
def test_a_form_of_another_origin_changes_nothing(bench: Bench, headers: dict[str, str]) -> None:
    bench.log_in("admin")
    answer = bench.client.post("/do/mark", content=bench.csrf(), headers=headers)
    assert answer.status_code == 403
    assert not bench.written
    bench.client.cookies.clear()
    assert bench.client.post("/login", headers={"x-token": bench.token["admin"]} | headers).status_code == 403


def test_a_form_without_the_token_of_its_session_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.log_in("admin")
    stale = bench.csrf()
    for csrf in ("", "x", "ä" * 10):
        assert bench.client.post("/do/mark", content=csrf, headers={"origin": BASE}).status_code == 403
    bench.log_in("admin")
    assert bench.client.post("/do/mark", content=stale, headers={"origin": BASE}).status_code == 403
    assert not bench.written
    assert bench.client.post("/do/mark", content=bench.csrf(), headers={"origin": BASE}).status_code == 204
    assert bench.written == ["admin"], "the name of the token is who did it"


def test_a_session_ends_with_its_token_and_with_time(bench: Bench) -> None:
    bench.log_in("replayer")
    assert bench.client.get("/").status_code == 200
    bench.now += SESSION_S
    assert bench.client.get("/").status_code == 401
    bench.log_in("replayer")
    bench.file.remove("replayer")
    assert bench.client.get("/").status_code == 401, "a removed token ends its sessions at once"


def test_tokens_are_stored_as_hashes_in_a_file_of_the_owner(bench: Bench) -> None:
    content = bench.file.path.read_text()
    assert all(token not in content and digest(token) in content for token in bench.token.values())
    assert stat.S_IMODE(bench.file.path.stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="already"):
        bench.file.add("admin", "admin")
    with pytest.raises(ConfigError, match="not a name"):
        bench.file.add("<script>", "viewer")


def test_a_broken_token_file_is_an_error_and_not_an_open_door(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.path.write_text('{"tokens": [{"name": "x", "role": "root", "sha256": ""}]}')
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(file).identity("") or Tokens(file).identity("anything")


def test_a_token_of_the_process_alone_needs_no_file() -> None:
    token = new_token()
    tokens = Tokens(None, session=("ada", token))
    identity = tokens.identity(token)
    assert identity is not None
    assert (identity.name, identity.role) == ("ada", "admin")
    assert tokens.identity(new_token()) is None
    assert tokens.identity("x" * 10_000) is None


def guess(bench: Bench, **headers: str) -> int:
    """Send a wrong token; returns the status."""
    given = {"authorization": "Bearer guess"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return bench.client.get("/api/v1/read", headers=given).status_code


def test_guessing_tokens_is_slowed_down_and_never_the_right_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, logins=RequestRate(burst=3, per_minute=6))
    assert [guess(bench) for _ in range(5)] == [401, 401, 401, 429, 429]
    assert bench.client.post("/login", headers={"x-token": "guess", "origin": BASE}).status_code == 429
    right = bench.client.get("/api/v1/read", headers={"authorization": f"Bearer {bench.token['viewer']}"})
    assert right.status_code == 200, "behind a proxy the one who guesses has the same address"
    assert bench.log_in() == 204
    bench.now += 10
    assert guess(bench) == 401


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        ((), "6.6.6.6", "testclient"),
        (("127.0.0.1",), "6.6.6.6", "6.6.6.6"),
        (("127.0.0.1",), "1.1.1.1, 6.6.6.6", "6.6.6.6"),
        (("127.0.0.1", "6.6.0.0/16"), "1.1.1.1, 6.6.6.6", "1.1.1.1"),
        (("127.0.0.1", "6.6.0.0/16"), "6.6.6.6", "6.6.6.6"),
        (("127.0.0.1",), "", "127.0.0.1"),
        (("127.0.0.1",), "<nonsense>", "127.0.0.1"),
        (("127.0.0.0/8",), "::ffff:127.0.0.9", "127.0.0.9"),
        (("127.0.0.1",), "203.0.113.5:4711", "203.0.113.5"),
        (("127.0.0.1", "6.6.0.0/16"), "1.1.1.1:80, 6.6.6.6:4711", "1.1.1.1"),
        (("127.0.0.1",), "[2001:db8::7]:4711", "2001:db8::7"),
        (("127.0.0.1",), '"[2001:db8::7]"', "2001:db8::7"),
        (("127.0.0.1",), "2001:db8::7", "2001:db8::7"),
        (("127.0.0.1",), "fe80::7%eth0", "fe80::7"),
        (("127.0.0.1", "6.6.0.0/16"), "1.1.1.1, unknown, 6.6.6.6", "6.6.6.6"),
        (("127.0.0.1",), "1.1.1.1, unknown", "127.0.0.1"),
        (("10.0.0.0/8",), "6.6.6.6", "127.0.0.1"),
    ],
)
def test_a_named_proxy_says_whose_request_it_is(proxies: tuple[str, ...], forwarded: str, address: str) -> None:
    peer = "testclient" if not proxies else "127.0.0.1"
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    request = Request({"type": "http", "client": (peer, 1), "headers": headers})
    assert client_address(request, tuple(ip_network(one) for one in proxies)) == address


def test_behind_a_named_proxy_each_stranger_has_limits_of_his_own(tmp_path: Path) -> None:
    bench = Bench(tmp_path, proxies=(ip_network("127.0.0.1"),), logins=RequestRate(burst=1, per_minute=6))
    bench.client = TestClient(bench.client.app, base_url=BASE, client=("127.0.0.1", 1))
    assert [guess(bench, x_forwarded_for="6.6.6.6") for _ in range(2)] == [401, 429]
    assert guess(bench, x_forwarded_for="7.7.7.7") == 401


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("203.0.113.5:4711", "203.0.113.5:4712"),
        ("2001:db8:1:2::7", "2001:db8:1:2:aaaa:bbbb:cccc:dddd"),
        ("6.6.6.6", "::ffff:6.6.6.6"),
    ],
)
def test_a_stranger_gets_no_new_limit_by_another_port_or_address_of_his_network(
    tmp_path: Path, first: str, second: str
) -> None:
    bench = Bench(tmp_path, proxies=(ip_network("127.0.0.1"),), logins=RequestRate(burst=1, per_minute=6))
    bench.client = TestClient(bench.client.app, base_url=BASE, client=("127.0.0.1", 1))
    assert [guess(bench, x_forwarded_for=one) for one in (first, second)] == [401, 429]
    assert guess(bench, x_forwarded_for="2001:db8:1:3::7") == 401


def test_strangers_never_use_up_the_reads_of_users(tmp_path: Path) -> None:
    bench = Bench(tmp_path, reads=RequestRate(burst=10, per_minute=60))
    statuses = [bench.client.get("/").status_code for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    bearer = {"authorization": f"Bearer {bench.token['viewer']}"}
    assert bench.client.get("/api/v1/read", headers=bearer).status_code == 200
    assert bench.log_in() == 204
    assert bench.client.get("/").status_code == 200


def test_files_of_the_page_do_not_count_as_reads(tmp_path: Path) -> None:
    bench = Bench(tmp_path, reads=RequestRate(burst=2, per_minute=60))
    assert {bench.client.get("/static/desk.css").status_code for _ in range(20)} == {404}, "the bench has none"
    assert bench.client.get("/").status_code == 401


def test_reads_and_writes_have_rates(tmp_path: Path) -> None:
    bench = Bench(tmp_path, writes=RequestRate(burst=2, per_minute=60), reads=RequestRate(burst=10, per_minute=60))
    bearer = {"authorization": f"Bearer {bench.token['admin']}"}
    codes = [bench.client.post("/api/v1/do/mark", headers=bearer).status_code for _ in range(12)]
    assert codes == [204] * 2 + [429] * 10
    assert bench.client.get("/api/v1/read", headers=bearer).status_code == 429
    bench.now += 5
    assert bench.client.get("/").status_code == 401


def test_a_rate_limiter_forgets_keys_and_refills() -> None:
    now = [0.0]
    limiter = RateLimiter(RequestRate(burst=1, per_minute=60), lambda: now[0])
    assert limiter.take("a") == 0
    assert limiter.take("a") == 1.0
    now[0] += 0.5
    assert limiter.take("a") == 0.5
    for number in range(RateLimiter.MAX_KEYS + 1):
        limiter.take(str(number))
    assert limiter.take("a") == 0, "the oldest is forgotten"


def test_a_body_that_is_too_large_is_refused_announced_or_not(bench: Bench) -> None:
    bearer = {"authorization": f"Bearer {bench.token['admin']}"}
    large = b"x" * (3 * 1024 * 1024)
    assert bench.client.post("/api/v1/do/mark", content=large, headers=bearer).status_code == 413
    chunks = iter([large[: 1024 * 1024]] * 3)
    assert bench.client.post("/api/v1/do/mark", content=chunks, headers=bearer).status_code == 413
    assert not bench.written


def test_every_response_has_the_security_headers(bench: Bench) -> None:
    for path in ("/", "/missing", "/api/v1/read"):
        headers = bench.client.get(path).headers
        assert headers["content-security-policy"] == CSP
        assert "unsafe" not in CSP
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


def test_names_of_hosts() -> None:
    assert [host_name(one) for one in ("a:1", "[::1]:8", "A.", "user@b", "[x")] == ["a", "::1", "a", "", ""]


@pytest.mark.parametrize("path", ["//[::1", "/\t/[::1", "/\t/example.org/x", "/\\[::1", "http://[::1", "", "/\x00"])
def test_a_form_leads_back_to_a_page_of_this_desk(path: str) -> None:
    assert local(path) == "/"
    assert local("/records?q=[::1&done=x") == "/records?q=%5B%3A%3A1"
