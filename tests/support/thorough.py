"""How many examples a property is tried with: all of them with `make test-full`, fewer with `make test`."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """So many of `count`."""
    return count if os.environ.get("THOROUGH_TESTS") else max(50, count // 3)
