"""The desk's topic is looked for now and then; soon, where there are letters that may be replayed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from keepfast.engine.outcomes import POLL_INTERVAL_S, SOON_S, OutcomeReporter
from tests.support.fakes import ListMailbox, ManualClock

Answer = Callable[[Mapping[str, bool]], None]


class Looks:
    """A reporter whose questions about topics the test answers."""

    def __init__(self) -> None:
        self.asked: list[Collection[str]] = []
        self.letters = False
        self.there = {"desk": False, "orders.g.replay": False}
        self.reporter = OutcomeReporter(
            "g",
            "desk",
            send=lambda *_: None,
            ask=self._ask,
            has_letters=lambda: self.letters,
            sources=lambda: ["orders", "x" * 249],
            mailbox=ListMailbox(),
            clock=ManualClock(),
            finished=lambda _: None,
        )

    def _ask(self, names: Collection[str], answer: Answer) -> None:
        self.asked.append(names)
        answer({name: there for name, there in self.there.items() if name in names})

    def count(self, begin: float, end: float) -> int:
        """How often it asks within this time."""
        self.asked.clear()
        for tenth in range(round((end - begin) * 10)):
            self.reporter.step(begin + tenth / 10)
        return len(self.asked)


def test_without_letters_and_without_a_desk_it_looks_rarely_and_for_one_topic() -> None:
    looks = Looks()
    assert looks.count(0.0, 3 * POLL_INTERVAL_S) == 3
    assert looks.asked == [["desk"]] * 3
    assert not looks.reporter.active


def test_while_there_are_letters_the_desk_is_noticed_soon() -> None:
    looks = Looks()
    looks.count(0.0, 1.0)
    looks.letters = True
    assert looks.count(1.0, 1.0 + 4 * SOON_S) == 4
    looks.there["desk"] = True
    assert looks.count(1.0 + 4 * SOON_S, 1.0 + 6 * SOON_S) == 2  # the desk, then at once the topics for replays
    assert looks.reporter.active
    assert looks.asked[-1] == ["desk", "orders.g.replay"]  # a name that Kafka refuses is left out
    assert looks.reporter.replay_topics == frozenset()
    assert looks.count(100.0, 100.0 + POLL_INTERVAL_S) == 1
    looks.there["orders.g.replay"] = True
    looks.count(200.0, 200.0 + POLL_INTERVAL_S)
    assert looks.reporter.replay_topics == {"orders.g.replay"}
