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
    # Statuses, from any client
    Rule(
        _http(502, 503, 504, 521, 522, 523),
        "retryable",
        name="http-unavailable",
        outage=True,
        standard="§1.1.1 Service Unavailable",
        why="The service is down, or its proxy cannot reach it (521 to 523 are used by one large proxy).",
    ),
    Rule(
        "http:429",
        "retryable",
        name="http-rate-limit",
        standard="§1.1.1 Rate Limiting",
        why="The service limits the request rate; Retry-After is respected.",
    ),
    Rule(
        _http(408, 425),
        "retryable",
        name="http-too-slow-or-early",
        standard=_TIMEOUT,
        why="Request Timeout and Too Early: these statuses allow a retry by definition.",
    ),
    Rule("http:423", "retryable", name="http-locked", standard="§1.1.1", why="Locked: the resource is in use."),
    Rule(
        _http(401, 403, 407),
        "non-retryable",
        name="http-auth",
        code="AUTH_REFUSED",
        standard="§1.1.2 Authentication/Authorization",
        why="Credentials or a permission are missing, and a retry does not change that.",
    ),
    Rule(
        "http:404",
        "not-found",
        name="http-not-found",
        code="NOT_FOUND",
        standard="§1.1.2 Not Found",
        why="Context-dependent by the standard: the setting decides.",
    ),
    Rule(
        "http:410",
        "non-retryable",
        name="http-gone",
        code="NOT_FOUND",
        standard="§1.1.2 Not Found",
        why="Gone: the resource was removed permanently.",
    ),
    Rule(
        "http:4xx",
        "non-retryable",
        name="http-client-error",
        standard="§1.1.2 Validation Errors",
        why="The service rejected the request and would reject it again. 409 included.",
    ),
    Rule(
        _http(501, 505),
        "non-retryable",
        name="http-unsupported",
        standard="§1.1.2",
        why="The service does not support the method or the protocol.",
    ),
    Rule(
        "http:5xx",
        "unknown",
        name="http-server-error",
        why="500 and the others: a temporary fault, or a bug that this record triggers. The standard does not"
        " name them, so they are treated like unknown errors.",
    ),
    Rule(
        "http:3xx",
        "non-retryable",
        name="http-redirect",
        standard="§1.1.2 Configuration Errors",
        why="A redirect reported as an error: the address is wrong, or redirects are disabled.",
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
        why="The connection was refused, broken, or not established.",
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
        why="The service did not respond in time. A hanging service is the most expensive outage.",
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
        why="A TLS error is not caused by the record.",
    ),
    Rule(
        (*_of("httpx", "PoolTimeout"), *_of("httpcore", "PoolTimeout"), *_of(_URLLIB3, "EmptyPoolError")),
        "retryable",
        name="http-pool",
        code="RESOURCE_EXHAUSTED",
        standard="§1.1.1",
        why="All connections of this process are in use; the service may be healthy.",
    ),
    Rule(
        (f"{_REQUESTS}.RetryError", *_of(_URLLIB3, "MaxRetryError", "ResponseError")),
        "retryable",
        name="http-client-gave-up",
        code="NETWORK_ERROR",
        standard="§1.1.1",
        why="The client's own retries are exhausted, for an unknown reason.",
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
        why="No valid request can be built from these values.",
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
        why="The response has no error status, but its content is invalid.",
    ),
)
