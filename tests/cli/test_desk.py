"""`keepfast desk`: what it says when it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.desk_page.tokens import TokenFile
from keepfast.testing.topics import TopicAdmin
from tests.support.command import keepfast, running
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("options", "warned"),
    [(("--host", "0.0.0.0"), True), (("--host", "0.0.0.0", "--https", "--proxy", "10.0.0.0/8"), False), ((), False)],
)
def test_a_desk_that_others_reach_without_tls_warns(
    kafka: TopicAdmin, tmp_path: Path, options: tuple[str, ...], warned: bool
) -> None:
    TokenFile(tmp_path / "tokens.json").add("ada", "viewer")
    words = ("desk", "--brokers", kafka.bootstrap, "--topic", "orders.dlq", "--port", "0", "--tokens", "tokens.json")
    printed = tmp_path / "printed"
    with running(*words, *options, cwd=tmp_path, printed=printed):
        wait_until(lambda: "The desk: http" in printed.read_text(), "it serves")
    assert ("answers on 0.0.0.0 without TLS" in printed.read_text()) is warned


def test_a_proxy_is_an_address_or_a_network(tmp_path: Path) -> None:
    done = keepfast("desk", "--brokers", "127.0.0.1:9", "--proxy", "proxy.example.com", cwd=tmp_path)
    assert done.returncode == 2
    assert "'proxy.example.com' is no IP address or network" in done.stderr
