"""Where code that does not come to an end is right now, in the shape in which errors say where they were raised."""

from __future__ import annotations

import gc
import sys
from types import FrameType, TracebackType


def threads_now() -> list[FrameType]:
    """Where each thread of the process is.

    Without the garbage collector: Python 3.11 makes the answer under a lock that every thread needs that starts or
    ends, and a collection in the middle of it that lets another thread run stops the process for ever.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return list(sys._current_frames().values())  # noqa: SLF001 - it has no other name
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
