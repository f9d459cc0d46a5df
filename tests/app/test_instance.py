"""What is checked before anything is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from keepfast import App, ConfigError


class Pool: ...


@dataclass
class Resources:
    pool: Pool


def test_what_is_wrong_in_the_code_is_reported_before_the_lifespan_is_entered() -> None:
    entered: list[bool] = []

    @contextmanager
    def lifespan(app: App) -> Iterator[Resources]:
        entered.append(True)
        yield Resources(Pool())

    app = App("shop", lifespan=lifespan)

    @app.consumer("shop.order.v1")
    def charge(order: dict[str, str], pool: Pool, unknown) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(ConfigError, match="parameter 'unknown': it has no annotation") as caught:
        app.start()
    assert len(caught.value.problems) == 1, "the pool may come from the lifespan"
    assert entered == []


def test_what_the_lifespan_does_not_yield_is_reported_before_brokers_are_looked_for() -> None:
    left: list[bool] = []

    @contextmanager
    def lifespan(app: App) -> Iterator[Resources]:
        yield Resources(Pool())
        left.append(True)

    app = App("shop", lifespan=lifespan, kafka={"brokers": "127.0.0.1:1"})

    @app.consumer("shop.order.v1")
    def charge(order: dict[str, str], wanted: Iterator[int]) -> None: ...

    with pytest.raises(ConfigError, match="parameter 'wanted': nothing provides"):
        app.start()
    assert left == [True]
