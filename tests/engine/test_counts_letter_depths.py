"""How many letters there are: asked for now and then, and more often while a topic is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from keepfast.engine.counts import AGAIN_S, ASK_S, LetterDepths


def test_a_topic_that_is_not_there_is_asked_for_again_soon() -> None:
    asked: list[float] = []
    now, depth = 0.0, [None, None, 3, 3]

    def ask(topics: Mapping[str, int], reported: Callable[[Mapping[str, int | None]], None]) -> None:
        reported(dict.fromkeys(topics, depth[len(asked)]))
        asked.append(now)

    depths = LetterDepths(ask, {"shop.dlq": 4})
    while len(asked) < 4:
        depths.look(now)
        now += 1
    assert asked == [0, AGAIN_S, 2 * AGAIN_S, 2 * AGAIN_S + ASK_S]
    assert depths.look(now) == {"shop.dlq": 3}
