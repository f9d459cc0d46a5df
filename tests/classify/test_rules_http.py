"""Statuses, refused ports, silence and cut connections, as each HTTP client tells them."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from email.utils import formatdate

import aiohttp
import httpx
import pytest
import requests
import requests.adapters
import urllib3
from urllib3.util import Retry

from tests.classify.errors import (
    DOWN,
    NOW_WALL,
    TIMED_OUT,
    HttpServer,
    caught,
    caught_async,
    found,
    refused_port,
    verdict,
)
from tests.support.waiting import DEADLINE_S

Get = Callable[[str], BaseException]


def timeout_of(url: str) -> float:
    """Only what never answers is given up soon: on a loaded machine any answer may take a while."""
    return 0.2 if url.endswith("silent") else DEADLINE_S


def with_requests(url: str) -> BaseException:
    return caught(lambda: requests.get(url, timeout=timeout_of(url), allow_redirects=False).raise_for_status())


def with_httpx(url: str) -> BaseException:
    return caught(lambda: httpx.get(url, timeout=timeout_of(url), trust_env=False).raise_for_status())


def with_aiohttp(url: str) -> BaseException:
    async def get() -> None:
        timeout = aiohttp.ClientTimeout(sock_read=timeout_of(url))
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            response.raise_for_status()

    return caught_async(get)


def with_urllib(url: str) -> BaseException:
    def get() -> None:
        with urllib.request.urlopen(url, timeout=timeout_of(url)):
            pass

    return caught(get)


def with_urllib3(url: str) -> BaseException:
    """Which raises for a status only when it was asked to retry it."""
    retries = Retry(total=0, status_forcelist=range(400, 600), respect_retry_after_header=False)
    with urllib3.PoolManager(retries=retries, timeout=timeout_of(url)) as pool:
        return caught(lambda: pool.request("GET", url))


def with_requests_that_retry(url: str) -> BaseException:
    retries = Retry(total=0, status_forcelist=range(400, 600), respect_retry_after_header=False)
    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        return caught(lambda: session.get(url, timeout=timeout_of(url)))


CLIENTS = [with_requests, with_httpx, with_aiohttp, with_urllib]
ALL_CLIENTS = [*CLIENTS, with_urllib3, with_requests_that_retry]


@pytest.fixture(params=ALL_CLIENTS, ids=lambda client: client.__name__)
def get(request: pytest.FixtureRequest) -> Get:
    client: Get = request.param
    return client


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ("non-retryable", "HTTP_400", False)),
        (401, ("non-retryable", "AUTH_REFUSED", False)),
        (403, ("non-retryable", "AUTH_REFUSED", False)),
        (404, ("non-retryable", "NOT_FOUND", False)),
        (408, ("retryable", "HTTP_408", False)),
        (409, ("non-retryable", "HTTP_409", False)),
        (422, ("non-retryable", "HTTP_422", False)),
        (425, ("retryable", "HTTP_425", False)),
        (429, ("retryable", "HTTP_429", False)),
        (500, ("retryable", "HTTP_500", False)),
        (501, ("non-retryable", "HTTP_501", False)),
        (502, ("retryable", "HTTP_502", True)),
        (503, ("retryable", "HTTP_503", True)),
        (504, ("retryable", "HTTP_504", True)),
    ],
)
def test_a_status_decides_whichever_client_brings_it(
    get: Get, server: HttpServer, status: int, expected: tuple[str, str, bool]
) -> None:
    assert verdict(get(server.url(str(status)))) == expected


def test_a_refused_connection_is_an_outage(get: Get) -> None:
    with refused_port() as port:
        assert verdict(get(f"http://127.0.0.1:{port}/")) == DOWN


def test_a_service_that_does_not_answer_is_an_outage(get: Get, server: HttpServer) -> None:
    assert verdict(get(server.url("silent"))) == ("retryable", "TIMEOUT", True)


def test_a_connection_that_is_cut_is_an_outage(get: Get, server: HttpServer) -> None:
    assert verdict(get(server.url("cut"))) == DOWN


def test_a_host_that_is_not_known_is_an_outage(get: Get) -> None:
    assert verdict(get("http://no-such-host.invalid/")) == DOWN


@pytest.mark.parametrize("client", CLIENTS)
def test_retry_after_is_read_in_seconds_and_as_a_date(client: Get, server: HttpServer) -> None:
    assert found(client(server.url("429?Retry-After=120"))).retry_after_s == 120
    date = formatdate(NOW_WALL + 90, usegmt=True)
    assert found(client(server.url(f"503?Retry-After={date.replace(' ', '+')}"))).retry_after_s == 90
    assert found(client(server.url("503"))).retry_after_s is None


def test_what_is_not_retried_has_no_delay(server: HttpServer) -> None:
    assert found(with_requests(server.url("400?Retry-After=120"))).retry_after_s is None


@pytest.mark.parametrize(
    "error",
    [
        caught(lambda: requests.get("nonsense")),
        caught(lambda: requests.get("ftp://example.invalid")),
        caught(lambda: httpx.get("nonsense")),
        caught(lambda: httpx.get("http://host:port")),
        with_aiohttp("nonsense"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_address_that_can_be_none_is_final(error: BaseException) -> None:
    assert verdict(error) == ("non-retryable", "VALUE_INVALID", False)


def test_an_answer_that_is_not_json_is_final(server: HttpServer) -> None:
    async def ask() -> None:
        async with aiohttp.ClientSession() as session, session.get(server.url("200")) as response:
            await response.json()

    expected = ("non-retryable", "RESPONSE_INVALID", False)
    assert verdict(caught(lambda: requests.get(server.url("200"), timeout=DEADLINE_S).json())) == expected
    assert verdict(caught_async(ask)) == expected


def test_a_page_instead_of_json_still_tells_the_status(server: HttpServer) -> None:
    async def ask() -> None:
        async with aiohttp.ClientSession() as session, session.get(server.url("503")) as response:
            await response.json()

    error = caught_async(ask)
    assert isinstance(error, aiohttp.ContentTypeError)
    assert verdict(error) == ("retryable", "HTTP_503", True)


def test_redirects_without_end_are_final(server: HttpServer) -> None:
    url = server.url("loop")
    assert verdict(caught(lambda: requests.get(url, timeout=DEADLINE_S))) == (
        "non-retryable",
        "RESPONSE_INVALID",
        False,
    )
    assert verdict(caught(lambda: httpx.get(url, follow_redirects=True))) == (
        "non-retryable",
        "RESPONSE_INVALID",
        False,
    )
    assert verdict(with_aiohttp(url)) == ("non-retryable", "RESPONSE_INVALID", False)


def test_a_redirect_that_is_not_followed_is_final(server: HttpServer) -> None:
    assert verdict(with_httpx(server.url("loop"))) == ("non-retryable", "HTTP_302", False)


def test_the_order_of_bases_does_not_hide_what_a_timeout_is(server: HttpServer) -> None:
    """requests' ConnectTimeout is a ConnectionError first; urllib3's refused connection is a ConnectTimeoutError."""
    assert verdict(requests.ConnectTimeout()) == TIMED_OUT
    assert verdict(requests.ReadTimeout()) == TIMED_OUT
    with refused_port() as port:
        error = with_urllib3(f"http://127.0.0.1:{port}/")
    assert isinstance(error, urllib3.exceptions.MaxRetryError)
    assert isinstance(error.reason, urllib3.exceptions.NewConnectionError)
    assert verdict(error.reason) == DOWN


def test_tls_trouble_is_an_outage_and_no_fault_of_the_record(server: HttpServer) -> None:
    url = server.url("200").replace("http:", "https:")
    expected = ("retryable", "TLS_ERROR", True)
    assert verdict(caught(lambda: requests.get(url, timeout=DEADLINE_S))) == expected
    assert verdict(with_aiohttp(url)) == expected
    assert verdict(with_urllib(url)) == expected


def test_a_pool_without_a_free_connection_is_no_outage() -> None:
    assert verdict(httpx.PoolTimeout("")) == ("retryable", "RESOURCE_EXHAUSTED", False)


def test_a_subclass_of_the_users_is_read_like_its_library(server: HttpServer) -> None:
    class PaymentGatewayError(requests.HTTPError):
        pass

    error = with_requests(server.url("503"))
    assert isinstance(error, requests.HTTPError)
    assert verdict(PaymentGatewayError(response=error.response)) == ("retryable", "HTTP_503", True)
