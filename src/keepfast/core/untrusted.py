"""Values out of foreign bytes: of the right type, length and range, or absent. Nothing here raises.

Headers and letters are input that anybody may have written; a bad one must never stop whoever reads it.
"""

from __future__ import annotations

from typing import Final

from keepfast.core.names import topic_problem

LARGEST_PARTITION: Final = 2**31 - 1
LARGEST_LONG: Final = 2**63 - 1


def text(value: object, limit: int) -> str:
    """A text, cut; empty if it is none."""
    return value[:limit] if isinstance(value, str) else ""


def utf8(value: bytes | None, limit: int) -> str:
    """Bytes as text, cut; what is not UTF-8 becomes replacement characters."""
    return "" if value is None else value[: 4 * limit].decode("utf-8", "replace")[:limit]


def whole(value: object, high: int = LARGEST_LONG) -> int | None:
    """A whole number from 0 to `high`."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high else None


def digits(value: bytes | None, high: int = LARGEST_LONG) -> int | None:
    """A whole number from 0 to `high`, written in ASCII digits."""
    if value is None or not 0 < len(value) <= 19 or not value.isdigit():
        return None
    return whole(int(value), high)


def topic(name: str) -> str | None:
    """A name that Kafka would allow."""
    return None if topic_problem(name) else name
