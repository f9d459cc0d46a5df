"""Routers: consumers of a module, added to an app; topics with types; what is refused where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keepfast import App, ConfigError, Context, Router
from keepfast.app.assembly import specs_of
from keepfast.testing.harness import harness


@dataclass
class A:
    id: int


@dataclass
class B:
    name: str


def assembled(app: App, environ: dict[str, str] | None = None) -> None:
    """All that is checked before a cluster is needed."""
    settings = app.settings(environ={"KAFKA_BROKERS": "localhost:1"} | (environ or {}), cwd=Path("/nonexistent"))
    specs_of(app.chosen(), settings)


def test_consumers_of_a_router_run_in_the_app_with_its_middleware_and_its_decoders() -> None:
    router, app, seen = Router(), App("shop"), list[Any]()

    @router.consumer("early.v1")
    def early(value: A) -> None:
        seen.append(value)

    app.include(router)

    @router.consumer("late.v1", name="tardy")
    async def late(value: A, ctx: Context) -> None:
        seen.append((value, ctx.group))

    @app.middleware
    def around() -> Iterator[None]:
        seen.append("around")
        yield

    @app.decoder(A)
    def of_bytes(data: bytes) -> A:
        return A(len(data))

    async def story() -> None:
        async with harness(app) as h:
            await h.send("early.v1", b"xyz")
            await h.send("late.v1", b"12345")

    asyncio.run(story())
    assert list(app.consumers) == ["early", "tardy"]
    assert seen == ["around", A(3), "around", (A(5), "shop.tardy")]


def test_a_router_may_be_in_two_apps() -> None:
    router, first, second = Router(), App("first"), App("second")

    @router.consumer("a.v1")
    def work(value: A) -> None: ...

    first.include(router)
    second.include(router)
    assert list(first.consumers) == list(second.consumers) == ["work"]
    assert first.settings(environ={}, cwd=Path("/nonexistent")).consumers["work"].group == "first.work"


def test_names_that_clash_are_refused_wherever_they_come_from() -> None:
    router, app = Router(), App("shop")

    @router.consumer("a.v1")
    def work(value: A) -> None: ...

    with pytest.raises(ConfigError, match="The router has two consumers named 'work'"):
        router.consumer("b.v1")(work)
    app.consumer("b.v1")(work)
    with pytest.raises(ConfigError, match="App 'shop' has two consumers named 'work'; give one of them name="):
        app.include(router)
    with pytest.raises(ConfigError, match=r"app.include takes a Router; App 'other'"):
        app.include(App("other"))


@pytest.mark.parametrize("topic", [r"audit\..*", "audit.*", "^orders$", "a|b"])
def test_a_regular_expression_as_a_topic_names_pattern(topic: str) -> None:
    with pytest.raises(ConfigError) as caught:
        App("shop").consumer(topic)
    assert "is no name of a topic" in str(caught.value)
    assert f'@app.consumer(Pattern(r"{topic}"))' in str(caught.value)


@pytest.mark.parametrize("topics", [(["a", "b"],), ({"a": A}, "b"), (1,), ({1: A},)])
def test_topics_of_another_shape_are_refused(topics: Any) -> None:
    with pytest.raises(ConfigError, match=r"one by one, in brackets of its own.*one dict with the type of each"):
        App("shop").consumer(*topics)


def test_what_does_not_go_together_is_said_with_the_place_of_the_handler() -> None:
    app = App("shop")

    @app.consumer({"a.v1": A, "b.v1": B})
    def work(value: A) -> None: ...

    with pytest.raises(ConfigError, match=r"test_router.py:\d+: .*records of the topic b.v1 become B, .* write A \| B"):
        assembled(app)


def test_types_by_topic_hold_for_the_names_that_settings_make_of_them() -> None:
    app = App("shop")

    @app.consumer({"{env}.a.v1": A, "b.v1": B})
    def work(value: A | B) -> None: ...

    assembled(app, {"KEEPFAST_APP_ENV": "staging"})
    with pytest.raises(ConfigError, match=r"no type is given for the topic c.v1; add it to the topics of"):
        assembled(app, {"KEEPFAST_CONSUMERS_WORK_TOPICS": "b.v1,c.v1"})


def test_a_second_decoder_of_a_type_and_one_that_is_no_plain_function_are_refused() -> None:
    app = App("shop")
    app.decoder(A, lambda data: A(len(data)))
    with pytest.raises(ConfigError, match="App 'shop' has two decoders of A; keep one of them"):
        app.decoder(A, lambda data: A(len(data)))

    async def of_bytes(data: bytes) -> B:
        return B("")

    with pytest.raises(ConfigError, match=r"app.decoder\(B\): .* must be a plain function of the bytes"):
        app.decoder(B, of_bytes)


def test_unknown_types_is_a_setting() -> None:
    app = App("shop")

    @app.consumer("a.v1", types={"a": A, "b": B}, type_header="kind")
    def work(value: A | B) -> None: ...

    async def story(environ: dict[str, str]) -> tuple[int, int, int]:
        async with harness(app, environ=environ) as h:
            await h.send("a.v1", {"id": 1}, headers={"kind": "a"})
            await h.send("a.v1", {"id": 1}, headers={"kind": "c"})
            return len(h.processed), len(h.dead), len(h.discarded)

    assert asyncio.run(story({})) == (1, 1, 0)
    assert asyncio.run(story({"KEEPFAST_CONSUMERS_WORK_UNKNOWN_TYPES": "discard"})) == (1, 0, 1)
