"""URLs without their credentials: as they may be logged, printed and stored."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, unquote

from keepfast.redact.masking import MASKED

MIN_PIECE = 3
_QUERY = re.compile("[?#]")
_ENDS = re.compile("[:/?#@%]")


def shown(url: str) -> str:
    """The URL without user, password and query, or the path of a file. Never raises, whatever `url` is: rather than a
    part of a password, it leaves out a part of the path.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    place = _QUERY.split(rest, maxsplit=1)[0]
    authority = place.partition("/")[0]
    if "@" in place and ("@" in authority or ":" in authority):
        place = place.rpartition("@")[2]
    elif "@" in rest and "@" not in place and ":" in authority:  # a password that has a ? or a #
        place = "…"
    return f"{scheme}://{place}"


def conceal(text: str, url: str) -> str:
    """The text, such as the message of a client's error, without what `shown` leaves out of this URL."""
    text = text.replace(url, shown(url))
    login, _, place = url.partition("://")[2].rpartition("@")
    parts = {value for _, value in parse_qsl(place.partition("?")[2])}
    for own in (login, login.rpartition("://")[2]):
        user, has_password, password = own.partition(":")
        if has_password:  # a client may take the URL apart elsewhere than it was meant
            parts |= {own, user, password, *(piece for piece in _ENDS.split(own) if len(piece) >= MIN_PIECE)}
    secrets = {form for part in parts - {""} for form in (part, unquote(part), quote(part, safe=""))}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASKED)
    return text
