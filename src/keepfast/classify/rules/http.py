"""Rules for HTTP statuses and for the errors of HTTP clients."""

from __future__ import annotations

from typing import Final

from keepfast.classify.rules.rule import Rule

_NETWORK = "§1.1.1 Network Errors"
_TIMEOUT = "§1.1.1 Timeout Errors"
_REQUESTS, _AIOHTTP, _URLLIB3 = "requests.exceptions", "aiohttp.client_exceptions", "urllib3.exceptions"


def _of(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for name in names)


def _http(*statuses: int | str) -> tuple[str, ...]:
    return tuple(f"http:{status}" for status in statuses)


HTTP_RULES: Final = (
    # Statuses, whichever client brings them
    Rule(
        _http(502, 503, 504, 521, 522, 523),
        "retryable",
        name="http-unavailable",
        outage=True,
        standard="§1.1.1 Service Unavailable",
        why="The service is down, or what stands before it does not reach it (521 to 523: as one large proxy says it).",
    ),
    Rule(
        "http:429",
        "retryable",
        name="http-rate-limit",
        standard="§1.1.1 Rate Limiting",
        why="The service lives and asks to go slower; Retry-After is obeyed.",
    ),
    Rule(
        _http(408, 425),
        "retryable",
        name="http-too-slow-or-early",
        standard=_TIMEOUT,
        why="Request Timeout and Too Early: the status itself invites to try again.",
    ),
    Rule("http:423", "retryable", name="http-locked", standard="§1.1.1", why="Locked: somebody else works on it."),
    Rule(
        _http(401, 403, 407),
        "non-retryable",
        name="http-auth",
        code="AUTH_REFUSED",
        standard="§1.1.2 Authentication/Authorization",
        why="An identity or a right is missing, and is so for the next attempt.",
    ),
    Rule(
        "http:404",
        "not-found",
        name="http-not-found",
        code="NOT_FOUND",
        standard="§1.1.2 Not Found",
        why="Context-dependent, says the standard: the setting decides.",
    ),
    Rule(
        "http:410",
        "non-retryable",
        name="http-gone",
        code="NOT_FOUND",
        standard="§1.1.2 Not Found",
        why="Gone: it was there and will not come back.",
    ),
    Rule(
        "http:4xx",
        "non-retryable",
        name="http-client-error",
        standard="§1.1.2 Validation Errors",
        why="The service read the request and refused it; the same request is refused again. 409 included.",
    ),
    Rule(
        _http(501, 505),
        "non-retryable",
        name="http-unsupported",
        standard="§1.1.2",
        why="The service does not know the method or the protocol.",
    ),
    Rule(
        "http:5xx",
        "unknown",
        name="http-server-error",
        why="500 and the rest: perhaps a passing fault, perhaps a bug that this record meets. The standard does not"
        " name them, so they are treated as any unknown error.",
    ),
    Rule(
        "http:3xx",
        "non-retryable",
        name="http-redirect",
        standard="§1.1.2 Configuration Errors",
        why="A redirect taken for an error: the address is wrong, or following was switched off.",
    ),
    # The clients' own errors
    Rule(
        (
            *_of(_REQUESTS, "ConnectionError", "ChunkedEncodingError"),
            *_of("httpx", "NetworkError", "RemoteProtocolError", "ProxyError"),
            *_of("httpcore", "NetworkError", "RemoteProtocolError", "ProxyError"),
            *_of(_AIOHTTP, "ClientConnectionError", "ClientPayloadError"),
            *_of(_URLLIB3, "NewConnectionError", "ProtocolError", "ProxyError", "IncompleteRead"),
            *_of("http.client", "IncompleteRead", "BadStatusLine"),
            "urllib.error.URLError",
        ),
        "retryable",
        name="http-network",
        code="NETWORK_ERROR",
        outage=True,
        standard=_NETWORK,
        why="The connection was refused, cut, or never made.",
    ),
    Rule(
        (
            *_of(_REQUESTS, "Timeout", "ConnectTimeout"),
            "httpx.TimeoutException",
            "httpcore.TimeoutException",
            f"{_AIOHTTP}.ServerTimeoutError",
            f"{_URLLIB3}.TimeoutError",
        ),
        "retryable",
        name="http-timeout",
        code="TIMEOUT",
        outage=True,
        standard=_TIMEOUT,
        why="The service did not answer in time. A hanging service is the outage that costs most.",
    ),
    Rule(
        (
            f"{_REQUESTS}.SSLError",
            f"{_URLLIB3}.SSLError",
            *_of(_AIOHTTP, "ClientSSLError", "ServerFingerprintMismatch"),
        ),
        "retryable",
        name="http-tls",
        code="TLS_ERROR",
        outage=True,
        standard=_NETWORK,
        why="As for every TLS error: the record has no part in it.",
    ),
    Rule(
        (*_of("httpx", "PoolTimeout"), *_of("httpcore", "PoolTimeout"), *_of(_URLLIB3, "EmptyPoolError")),
        "retryable",
        name="http-pool",
        code="RESOURCE_EXHAUSTED",
        standard="§1.1.1",
        why="All connections of this process are in use; the service may be well.",
    ),
    Rule(
        (f"{_REQUESTS}.RetryError", *_of(_URLLIB3, "MaxRetryError", "ResponseError")),
        "retryable",
        name="http-client-gave-up",
        code="NETWORK_ERROR",
        standard="§1.1.1",
        why="The client's own retries are used up, for a reason that it does not tell.",
    ),
    Rule(
        (
            *_of(_REQUESTS, "InvalidURL", "MissingSchema", "InvalidSchema", "InvalidHeader", "URLRequired"),
            f"{_REQUESTS}.InvalidJSONError",
            *_of("httpx", "InvalidURL", "UnsupportedProtocol", "LocalProtocolError"),
            *_of(_AIOHTTP, "InvalidURL", "NonHttpUrlClientError"),
            "http.client.InvalidURL",
        ),
        "non-retryable",
        name="http-request-invalid",
        code="VALUE_INVALID",
        standard="§1.1.2 Validation Errors",
        why="The request could not even be made from these values.",
    ),
    Rule(
        (
            *_of(_REQUESTS, "JSONDecodeError", "TooManyRedirects"),
            "httpx.TooManyRedirects",
            *_of(_AIOHTTP, "ContentTypeError", "TooManyRedirects"),
        ),
        "non-retryable",
        name="http-response-invalid",
        code="RESPONSE_INVALID",
        standard="§1.1.2 Schema Errors",
        why="An answer came, with no error status, and is not what was agreed on.",
    ),
)
