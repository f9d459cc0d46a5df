"""`app.send` without a broker: futures, bounds, and failures that nobody waits for."""

from __future__ import annotations

import asyncio

import pytest

from keepfast.app.sends import MAX_BYTES, MAX_RECORDS, AppSends, SendFuture
from keepfast.core.errors import Fault, SinkError
from keepfast.core.records import Outgoing, Receipt
from tests.support.fakes import FakeSink, hold
from tests.support.log_capture import LogCapture

RECORD = Outgoing("orders", b"1")
REFUSED = SinkError("it was refused", fault=Fault.REFUSED, code="NO")


def test_it_is_awaited_or_asked_and_can_be_asked_again() -> None:
    sends = AppSends(FakeSink(answers_elsewhere=True))

    async def twice() -> set[Receipt]:
        future = sends.send(RECORD)
        return {await future, await future, future.result(0)}

    assert len(asyncio.run(twice())) == 1


def test_who_is_cancelled_while_he_waits_does_not_cancel_the_send() -> None:
    sink = FakeSink(hold)
    sends, called = AppSends(sink), list[SendFuture]()

    async def program() -> SendFuture:
        future = sends.send(RECORD)
        future.add_done_callback(called.append)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)
        assert not future.done()
        return future

    future = asyncio.run(program())
    _, delivered = sink.held.pop()
    delivered(Receipt("orders", 0, 7))
    assert future.result(0).offset == 7
    assert called == [future]


def test_beyond_the_bound_it_raises_until_there_is_room() -> None:
    sink = FakeSink(hold)
    sends = AppSends(sink)
    for _ in range(MAX_RECORDS):
        sends.send(RECORD)
    with pytest.raises(SinkError, match=r"await what app\.send returns") as caught:
        sends.send(RECORD)
    assert caught.value.code == "QUEUE_FULL"
    _, delivered = sink.held.pop()
    delivered(Receipt("orders", 0, 7))
    sends.send(RECORD)
    assert len(sink.sent) == MAX_RECORDS + 1


def test_bytes_are_bounded_and_one_record_is_always_taken() -> None:
    sink = FakeSink(hold)
    sends = AppSends(sink)
    sends.send(Outgoing("orders", bytes(MAX_BYTES + 1)))
    with pytest.raises(SinkError, match="not acknowledged yet"):
        sends.send(RECORD)
    _, delivered = sink.held.pop()
    delivered(REFUSED)
    sends.send(RECORD)


def test_a_failure_is_raised_and_logged_since_perhaps_nobody_waits_for_it() -> None:
    sink = FakeSink(hold)
    with LogCapture() as log:
        future = AppSends(sink).send(Outgoing("refused", b"1"))
        _, delivered = sink.held.pop()
        delivered(REFUSED)
    with pytest.raises(SinkError, match="it was refused"):
        future.result(0)
    assert [fields["topic"] for fields in log.fields("send_failed")] == ["refused"]
