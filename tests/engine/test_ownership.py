"""Epochs: only the one in force is current."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.records import TopicPartition
from keepfast.engine.ownership import Epochs

PLACES = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("refunds", 0)]


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.booleans()), max_size=40))
def test_an_epoch_is_current_from_its_beginning_until_its_end_or_the_next_one(
    events: list[tuple[TopicPartition, bool]],
) -> None:
    epochs = Epochs()
    current: dict[TopicPartition, int] = {}
    given_out: list[tuple[TopicPartition, int]] = []
    for place, begins in events:
        if begins:
            current[place] = epochs.begin(place)
            given_out.append((place, current[place]))
        else:
            epochs.end(place)
            current.pop(place, None)
        for known, number in given_out:
            assert epochs.is_current(known, number) == (current.get(known) == number)
    numbers = [number for _, number in given_out]
    assert numbers == sorted(set(numbers))


def test_what_never_began_is_not_current() -> None:
    epochs = Epochs()
    number = epochs.begin(PLACES[0])
    assert not epochs.is_current(PLACES[1], number)
    assert not epochs.is_current(PLACES[0], number + 1)
    assert not epochs.is_current(PLACES[0], 0)
