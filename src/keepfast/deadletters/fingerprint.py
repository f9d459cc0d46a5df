"""One short name for one cause: exception type, message without values, and place in the user's code.

The same in every process and on every host: no line numbers, no folders, no hashes that differ from run to run.
"""

from __future__ import annotations

import re
import sysconfig
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from keepfast.core.errors import CodePlace, DecodeError, code_places, readable

MAX_LENGTH = 500
"""Characters of a message that count."""
_OURS = Path(__file__).resolve().parents[1]
_STANDARD = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})

# A quote inside a word is an apostrophe.
_QUOTED = re.compile(r"""(?<!\w)'(?:[^'\n\\]|\\.)*'(?!\w)|"(?:[^"\n\\]|\\.)*"|`[^`\n]*`""")
_QUOTED_OR_CUT = re.compile(
    r"""(?<!\w)'(?:[^'\n\\]|\\.)*(?:'(?!\w)|\\?\Z)|"(?:[^"\n\\]|\\.)*(?:"|\\?\Z)|`[^`\n]*(?:`|\Z)"""
)
"""Also a text whose closing quote was cut off."""
_VALUES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\binput_value=.*?, input_type="), "input_value=*, input_type="),  # pydantic quotes what it got
    (re.compile(r"https?://\S+"), "*"),
    (_QUOTED, "*"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "#"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b"), "#"),
    (re.compile(r"\b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b"), "#"),
    (re.compile(r"\b(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16,}\b"), "#"),
    (re.compile(r"\S+@\S+"), "*"),
    (re.compile(r"[0-9]+(?:[.,:][0-9]+)*"), "#"),
    (re.compile(r"\s+"), " "),
)

_MISSING_KEY = re.compile(r"'[A-Za-z_][A-Za-z_.\-]{0,63}'", re.ASCII)
"""All that a KeyError says: the name of a field, unless it has digits, as values have."""


def normalised(message: str) -> str:
    """The message without its values: quoted texts and addresses become `*`, numbers, hexadecimals and ids `#`. A
    message that is nothing but a quoted name, as that of a KeyError, stays.
    """
    if _MISSING_KEY.fullmatch(message):
        return message
    text = message[:MAX_LENGTH]
    if len(message) > MAX_LENGTH:
        text = _QUOTED_OR_CUT.sub("*", text)
    for pattern, instead in _VALUES:
        text = pattern.sub(instead, text)
    return text.strip()


def fingerprint(error_class: str, message: str, frame: str = "") -> str:
    """Twelve hexadecimal digits."""
    cause = "\0".join((error_class, normalised(message), frame))
    return blake2b(cause.encode("utf-8", "replace"), digest_size=6).hexdigest()


def user_frame(error: BaseException, *, package: str = "") -> str:
    """`module:function` of the innermost frame of the user's code, of the error or else of what it was raised from.

    The user's is what is neither ours nor the interpreter's nor installed, and whatever belongs to `package` (the
    handler's own, which may well be installed). Empty if there is none.
    """
    place = _innermost(error, package)
    return "" if place is None else f"{place.module}:{place.function}"


def user_place(error: BaseException, *, package: str = "") -> str:
    """`file:line` of the same frame, for people; the file as its module is imported, so without folders of a host."""
    place = _innermost(error, package)
    if place is None:
        return ""
    path = Path(place.file)
    depth = len(place.module.split(".")) + (path.stem == "__init__")
    return f"{'/'.join(path.parts[-depth:])}:{place.line}"


def _innermost(error: BaseException, package: str) -> CodePlace | None:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        trail = current.trail if isinstance(current, DecodeError) else ()
        innermost = None
        for place in trail or code_places(current.__traceback__):
            if place.module.partition(".")[0] == package or _is_of_the_user(place.file):
                innermost = place
        if innermost is not None:
            return innermost
        raised_from = current.__context__ if current.__cause__ is None else current.__cause__
        current = None if raised_from is None else readable(raised_from)
    return None


@lru_cache(maxsize=1024)
def _is_of_the_user(filename: str) -> bool:
    path = Path(filename)
    if filename.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not path.is_relative_to(_OURS) and not any(path.is_relative_to(root) for root in _STANDARD)
