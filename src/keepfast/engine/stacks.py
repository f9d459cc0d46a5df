"""Where code that does not come to an end is right now, in the shape in which errors say where they were raised."""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection
from pathlib import PurePath
from types import CodeType, FrameType, TracebackType

MAX_LOCATIONS = 20


def threads_now() -> dict[int, FrameType]:
    """Where each thread of the process is, by its identifier.

    Without the garbage collector: Python 3.11 makes the answer under a lock that every thread needs that starts or
    ends, and a collection in the middle of it that lets another thread run stops the process forever.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()  # noqa: SLF001 - it has no other name
    finally:
        if collecting:
            gc.enable()


def stack_of(frame: FrameType | None) -> list[FrameType]:
    """The frame and those that called it, the outermost first."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def awaits_of(coroutine: object) -> list[FrameType]:
    """The frames of a coroutine and of what it awaits, the outermost first."""
    frames: list[FrameType] = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return frames


def trace_of(frames: list[FrameType]) -> TracebackType | None:
    """What an exception would carry that was raised there."""
    trace: TracebackType | None = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno or 0)
    return trace


def locations(trace: TracebackType | None, *, below: Collection[CodeType] = ()) -> list[str]:
    """The places of a trace as `file:line function`, the innermost last; code only, no values.

    What called the innermost frame of `below` is left out, and so is that frame.
    """
    found: list[str] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code in below:
            found.clear()
        else:
            found.append(f"{PurePath(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return found[-MAX_LOCATIONS:]
