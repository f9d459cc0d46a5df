"""Whatever an exception does when it is looked at, its record gets a dead letter, and the consumer goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from keepfast import App, Discard, Reject, RetryPolicy
from keepfast.core.errors import error_class, readable
from keepfast.testing.harness import harness

TOPIC = "orders.v1"


def raising(kind: type[BaseException]) -> Any:
    def read(_: object) -> Any:
        raise kind("looked at")

    return property(read)


def odd(base: type[BaseException] = ValueError, **attributes: Any) -> BaseException:
    kind: type[BaseException] = type("Odd", (base,), attributes)
    return kind("odd")


class NamelessMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__name__", "__qualname__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Nameless(ValueError, metaclass=NamelessMeta):
    pass


class Speechless:
    def __str__(self) -> str:
        raise SystemExit


def raised_from(cause: BaseException) -> BaseException:
    error = ValueError("from")
    error.__cause__ = cause
    return error


class Wordless(Reject):
    reason = raising(RuntimeError)

    def __init__(self) -> None:
        ValueError.__init__(self, "no words")
        self.code = "WORDLESS"


ODDITIES: dict[str, Callable[[], BaseException]] = {
    "class": lambda: odd(__class__=raising(RuntimeError)),
    "class raises SystemExit": lambda: odd(__class__=raising(SystemExit)),
    "class is no class": lambda: odd(__class__=property(lambda _: 5)),
    "cause": lambda: odd(__cause__=raising(RuntimeError)),
    "context": lambda: odd(__context__=raising(RuntimeError)),
    "traceback": lambda: odd(__traceback__=raising(RuntimeError)),
    "false": lambda: raised_from(odd(__bool__=Speechless.__str__)),
    "names": lambda: Nameless("odd"),
    "text": lambda: odd(__str__=Speechless.__str__),
    "cause of another": lambda: raised_from(odd(__class__=raising(RuntimeError))),
    "cause without a name": lambda: raised_from(Nameless("odd")),
    "reason": Wordless,
    "reason without text": lambda: Reject(Speechless()),  # type: ignore[arg-type]
    "decoding": lambda: odd(UnicodeDecodeError, __class__=raising(RuntimeError), __init__=lambda *_: None),
}


@pytest.mark.parametrize("name", ODDITIES)
@pytest.mark.parametrize("batch", [False, True], ids=["record", "batch"])
def test_its_record_gets_a_dead_letter_and_the_next_one_is_handled(name: str, batch: bool) -> None:
    app, handled = App("shop"), []
    retry = RetryPolicy(max_retries=0)

    def handle(order: bytes) -> None:
        if order == b"odd":
            error = ODDITIES[name]()
            raise error
        handled.append(order)

    if batch:

        @app.consumer(TOPIC, retry=retry, idempotent=True)
        def take_all(orders: list[bytes]) -> None:
            for order in orders:
                handle(order)
    else:

        @app.consumer(TOPIC, retry=retry)
        def take(order: bytes) -> None:
            handle(order)

    async def story() -> None:
        async with harness(app, partitions=1) as run:
            await run.send(TOPIC, b"odd")
            await run.send(TOPIC, b"next")
            assert handled == [b"next"]
            [letter] = run.dead
            assert letter.value == b"odd"

    asyncio.run(story())


def test_the_stand_in_has_the_name_and_the_built_in_base() -> None:
    for base in (ValueError, SystemExit, UnicodeDecodeError):
        error = odd(base, __class__=raising(RuntimeError), __init__=lambda *_: None)
        assert issubclass(type(readable(error)), base)
        assert error_class(readable(error)).endswith("Odd")
    group = type("Odd", (ExceptionGroup,), {"__class__": raising(RuntimeError)})("odd", [ValueError()])
    assert type(readable(group)).__mro__[1] is Exception
    plain = Discard("why")
    assert readable(plain) is plain
