"""The garbage collector while loops run: buffered records are young objects that it would visit over and over."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

DEFAULTS = ((700, 10, 10), (2000, 10, 10), (2000, 10, 0))
"""What the interpreters start with; anything else was set by the user."""

OBJECTS = 50_000
"""New objects before a collection: more than the buffers hold, so a steady stream of records causes none."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Within it, what exists already is never visited and young objects seldom. What the user has set stays."""
    before = gc.get_threshold()
    if before not in DEFAULTS:
        yield
        return
    gc.freeze()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
