"""A key and a certificate for 127.0.0.1, made by the JDK's keytool for one test run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from keepfast.core.errors import StartError
from keepfast.testing.java import Java
from keepfast.testing.plan import KEYSTORE_PASSWORD


def make_certificate(java: Java, folder: Path) -> Path:
    """Write keystore.p12 and ca.pem into `folder` unless they are there; returns ca.pem, which clients trust."""
    authority = folder / "ca.pem"
    if authority.exists():
        return authority
    folder.mkdir(parents=True, exist_ok=True)
    store = ["-keystore", str(folder / "keystore.p12"), "-storepass", KEYSTORE_PASSWORD, "-alias", "broker"]
    _keytool(
        java, "-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1",
        "-dname", "CN=localhost", "-ext", "SAN=ip:127.0.0.1,dns:localhost", "-ext", "bc:c", "-validity", "30",
    )  # fmt: skip
    _keytool(java, "-exportcert", "-rfc", *store, "-file", str(authority))
    return authority


def _keytool(java: Java, *arguments: str) -> None:
    command = [str(java.tool("keytool")), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise StartError(
            f"A TLS listener needs the JDK's keytool: {error}. Install a JDK, or leave tls=True out."
        ) from error
    if done.returncode != 0:
        raise StartError(f"keytool could not make a certificate: {(done.stdout + done.stderr).strip()}")
