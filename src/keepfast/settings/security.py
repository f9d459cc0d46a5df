"""Whether login and encryption fit together, so that nobody believes in a protection that is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from keepfast.settings.gathered import Given
from keepfast.settings.resolver import DEFAULT

_FILES = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location")
_SASL = ("sasl_mechanism", "sasl_username", "sasl_password")


def security_problems(kafka: Mapping[str, Given], cwd: Path, *, refused: Callable[[str], bool]) -> list[str]:
    """What does not fit; a value that was `refused` already is not called missing."""
    protocol = kafka["security_protocol"]
    encrypted, login = str(protocol.value).endswith("SSL"), str(protocol.value).startswith("SASL")
    problems = _missing_files(kafka, cwd)
    for name in [key for key in kafka if key.startswith("ssl_")] if not encrypted else []:
        if kafka[name].origin != DEFAULT:
            fitting = "SASL_SSL" if login else "SSL"
            problems.append(
                f"{kafka[name].origin}: {name} has no effect, because kafka.security_protocol is {protocol.value}"
                f" ({protocol.origin}) and nothing is encrypted. Set it to {fitting}, or remove {name}."
            )
    for name in _SASL if not login else ():
        if kafka[name].value is not None:
            problems.append(
                f"{kafka[name].origin}: {name} has no effect, because kafka.security_protocol is {protocol.value}"
                f" ({protocol.origin}) and nobody logs in. Set it to SASL_SSL, or remove {name}."
            )
    if login:
        problems.extend(_login_problems(kafka, refused))
    if (kafka["ssl_certificate_location"].value is None) != (kafka["ssl_key_location"].value is None):
        given, missing = "ssl_certificate_location", "ssl_key_location"
        if kafka[given].value is None:
            given, missing = missing, given
        problems.append(f"{kafka[given].origin}: {given} needs kafka.{missing}, too. Set both or neither.")
    return problems


def security_warnings(kafka: Mapping[str, Given]) -> list[str]:
    if kafka["security_protocol"].value == "SASL_PLAINTEXT" and kafka["sasl_mechanism"].value == "PLAIN":
        return [
            "kafka.security_protocol is SASL_PLAINTEXT: the password crosses the network in the clear; use SASL_SSL."
        ]
    return []


def _login_problems(kafka: Mapping[str, Given], refused: Callable[[str], bool]) -> list[str]:
    protocol, mechanism = kafka["security_protocol"], kafka["sasl_mechanism"].value
    if mechanism is None and refused("kafka.sasl_mechanism"):
        return []
    if mechanism is None:
        return [
            f"{protocol.origin}: {protocol.value} needs kafka.sasl_mechanism. Set it, for example to SCRAM-SHA-512."
        ]
    if mechanism in {"OAUTHBEARER", "GSSAPI"}:
        return []
    missing = [f"kafka.{name}" for name in ("sasl_username", "sasl_password") if kafka[name].value is None]
    missing = [key for key in missing if not refused(key)]
    if not missing:
        return []
    return [f"{kafka['sasl_mechanism'].origin}: {mechanism} needs {' and '.join(missing)}. Set what is missing."]


def _missing_files(kafka: Mapping[str, Given], cwd: Path) -> list[str]:
    problems = []
    for name in _FILES:
        value, origin = kafka[name]
        if (
            isinstance(value, str)
            and not (name == "ssl_ca_location" and value == "probe")
            and not (cwd / value).exists()
        ):
            problems.append(f"{origin}: there is no file {value!r}. Put the path right, or mount the file.")
    return problems
