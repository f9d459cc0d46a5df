"""How many examples a property is tried with: all of them with `make test-full`, fewer with `make test`."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = bool(os.environ.get("THOROUGH_TESTS"))


def examples(count: int) -> int:
    """So many of `count`."""
    return count if THOROUGH else max(30, count // 4)
