from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from keepfast.core.errors import ConfigError
from keepfast.settings import Secret
from tests.settings.loader import Loader

PASSWORD = "correct horse battery"
LOGIN = {
    "KEEPFAST_KAFKA_SECURITY_PROTOCOL": "sasl_ssl",
    "KEEPFAST_KAFKA_SASL_MECHANISM": "scram-sha-512",
    "KEEPFAST_KAFKA_SASL_USERNAME": "shop",
    "KEEPFAST_KAFKA_SASL_PASSWORD": PASSWORD,
    "KEEPFAST_KAFKA_SSL_KEY_PASSWORD": PASSWORD,
    "KEEPFAST_KAFKA_LIBRDKAFKA_SASL_OAUTHBEARER_CLIENT_SECRET": PASSWORD,
}


def test_tls_and_sasl_are_read(loader: Loader) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (loader.cwd / name).touch()
    kafka = {"ssl_ca_location": "ca.pem", "ssl_certificate_location": "cert.pem", "ssl_key_location": "key.pem"}
    found = loader.load(LOGIN, settings={"kafka": kafka}).kafka
    assert (found.security_protocol, found.sasl_mechanism, found.sasl_username) == ("SASL_SSL", "SCRAM-SHA-512", "shop")
    assert found.sasl_password == found.ssl_key_password == Secret(PASSWORD)
    assert (found.ssl_ca_location, found.ssl_certificate_location, found.ssl_key_location) == tuple(kafka.values())
    assert found.ssl_endpoint_identification_algorithm == "https"
    assert found.librdkafka == {"sasl.oauthbearer.client.secret": PASSWORD}


def test_no_secret_is_seen_in_the_settings(loader: Loader) -> None:
    settings = loader.load(LOGIN)
    spoken = f"{settings!r} {settings} {settings.kafka} {dict(settings.origins)} {settings.warnings}"
    assert PASSWORD not in spoken
    assert "sasl_password=***" in spoken


@pytest.mark.parametrize(
    "sources",
    [
        {"environ": LOGIN | {"KEEPFAST_KAFKA_SASL_MECHANISM": "", "KEEPFAST_NOPE": PASSWORD}},
        {"dotenv": f"KEEPFAST_KAFKA_SASL_PASSWORD='{PASSWORD}\n"},
        {"dotenv": f"KEEPFAST_KAFKA_SASL_PASSWORD {PASSWORD}\n"},
        {"dotenv": f"KEEPFAST_KAFKA_SASL_PASWORD={PASSWORD}\n"},
        {"toml": f"[kafka]\nsasl_password = ['{PASSWORD}']\n"},
        {"toml": f"kafka = '{PASSWORD}'\n"},
        {"toml": f"[kafka]\nlibrdkafka = '{PASSWORD}'\n"},
        {"toml": f"[kafka.librdkafka]\n'ssl.key.password' = '{PASSWORD}'\n"},
        {"toml": f"[kafka.librdkafka]\n'ssl.keystore.password' = ['{PASSWORD}']\n"},
        {"toml": f"[kafka]\nsasl_pasword = '{PASSWORD}'\n"},
        {"toml": f"[kafka]\nsasl_password = '{PASSWORD}\n"},
        {"settings": {"kafka": {"sasl_password": {"a": PASSWORD}}}},
        {"environ": {"KAFKA_BROKERS": f"kafka://shop:{PASSWORD}@host:9092"}},
        {"environ": {"KAFKA_BROKERS": f"shop:{PASSWORD}@host:9092"}},
    ],
)
def test_no_secret_is_seen_in_a_problem(loader: Loader, sources: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        loader.load(**sources)
    assert "horse" not in str(caught.value)


def test_a_secret_is_given_out_only_on_purpose() -> None:
    secret = Secret(PASSWORD)
    assert [str(secret), repr(secret), f"{secret}", f"{secret!s:>5}"] == ["***", "***", "***", "  ***"]
    assert secret.reveal() == PASSWORD
    assert secret == Secret(PASSWORD)
    assert secret != Secret("another")
    assert hash(secret) == hash(Secret(PASSWORD))
    assert copy.deepcopy(secret) is secret
    assert copy.copy(secret) is secret
    with pytest.raises(TypeError, match="not serialised"):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    ("kafka", "printed"),
    [
        ({"sasl_username": "x"}, "sasl_username has no effect"),
        ({"sasl_password": "x"}, "sasl_password has no effect"),
        ({"ssl_endpoint_identification_algorithm": "none"}, "Set it to SSL"),
        ({"security_protocol": "SASL_SSL"}, "SASL_SSL needs kafka.sasl_mechanism"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"},
            "PLAIN needs kafka.sasl_username and kafka.sasl_password",
        ),
        ({"security_protocol": "SSL", "ssl_ca_location": "no.pem"}, "there is no file 'no.pem'"),
        ({"security_protocol": "SSL", "ssl_key_location": "."}, "needs kafka.ssl_certificate_location, too"),
        ({"security_protocol": "TLS"}, "must be one of PLAINTEXT, SSL"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "MAGIC"}, "must be one of PLAIN, SCRAM-SHA-256"),
        ({"brokers": "host:0"}, "number 1 is not host:port"),
        ({"brokers": ["a:9092", "b c"]}, "number 2 is not host:port"),
        ({"brokers": "http://host:9092"}, "leave out what is before ://"),
        ({"brokers": ","}, "got none"),
        ({"brokers": 9092}, "something of type int"),
    ],
)
def test_half_a_protection_is_a_problem(loader: Loader, kafka: dict[str, Any], printed: str) -> None:
    assert printed in loader.problem(settings={"kafka": kafka})


@pytest.mark.parametrize("brokers", ["host", "host:1", "10.0.0.1:9092", "[::1]:9092", "a:1, b:2", "[::1]", "my_host:1"])
def test_addresses_come_in_many_shapes(loader: Loader, brokers: str) -> None:
    assert loader.load({"KAFKA_BROKERS": brokers}).kafka.brokers == tuple(brokers.split(", "))


def test_a_password_in_the_clear_is_a_warning(loader: Loader) -> None:
    kafka = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "u",
        "sasl_password": "p",
    }
    (warning,) = loader.load(settings={"kafka": kafka}).warnings
    assert "use SASL_SSL" in warning


def test_mechanisms_without_a_password_need_none(loader: Loader) -> None:
    kafka = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    assert loader.load(settings={"kafka": kafka}).kafka.sasl_mechanism == "OAUTHBEARER"
