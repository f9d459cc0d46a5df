"""Says what is wrong with a value, as the end of a sentence, or None. Shared by the policies and the settings."""

from __future__ import annotations

import math
from collections.abc import Iterable


def whole(value: object, low: int, high: int | None = None) -> str | None:
    """A whole number between low and high. `True` is not one."""
    expected = f"must be {range_of('a whole number', low, high)}"
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{expected}; got {shown(value)}"
    if value < low or (high is not None and value > high):
        return f"{expected}; got {shown(value)}"
    return None


def number(value: object, low: float, high: float | None = None, *, above: bool = False) -> str | None:
    """A finite number between low and high; `above` leaves `low` itself out."""
    expected = f"must be {range_of('a number', low, high, above=above)}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{expected}; got {shown(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{expected}; got {shown(value)}"
    if value < low or (above and value == low) or (high is not None and value > high):
        return f"{expected}; got {shown(value)}"
    return None


def flag(value: object) -> str | None:
    return None if isinstance(value, bool) else f"must be true or false; got {shown(value)}"


def one_of(value: object, options: Iterable[str]) -> str | None:
    choices = tuple(options)
    if isinstance(value, str) and value in choices:
        return None
    return f"must be one of {', '.join(choices)}; got {shown(value)}"


def text(value: object) -> str | None:
    return None if isinstance(value, str) and value.strip() else f"must be a text that is not empty; got {shown(value)}"


def texts(value: object) -> str | None:
    """A tuple of texts. They may be secrets, so what was given is not shown."""
    if isinstance(value, tuple) and all(text(one) is None for one in value):
        return None
    return "must be a tuple of texts, none of them empty"


def is_utf8(text: str) -> bool:
    """Return False for lone surrogates, which stand for bytes of arguments and variables that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def range_of(what: str, low: float, high: float | None, *, above: bool = False) -> str:
    """`a whole number from 1 to 65535`, `a number above 0`."""
    if high is None:
        return f"{what} above {low:,}" if above else f"{what} of {low:,} or more"
    return f"{what} above {low:,}, at most {high:,}" if above else f"{what} from {low:,} to {high:,}"


def shown(value: object) -> str:
    """A value as it may stand in a message: short. Secrets must not come here."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a whole number with more than 20 digits"  # and Python refuses to print very long ones
    spoken = repr(value)
    return spoken if len(spoken) <= 60 else f"{spoken[:57]}…"
