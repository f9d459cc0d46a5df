"""Archives of letters: JSON lines with their bytes, in a file or at any fsspec URL; `.gz` is compressed."""

from __future__ import annotations

import gzip
import io
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from keepfast.core.errors import ConfigError, KeepfastError
from keepfast.core.records import Outgoing, Record
from keepfast.desk.cases import Case
from keepfast.desk.desk import Desk


def archive(desk: Desk, cases: Iterable[Case], url: str, *, why: str = "") -> int:
    """Write the letters of these cases, and mark them as archived. Returns how many. Raises KeepfastError."""
    written = []
    with opened(url, "w") as out:
        for case in cases:
            record = desk.cluster.record_at(case.letter)
            if record is not None:
                out.write(json.dumps({"case": case.id, **_archived(record)}) + "\n")
                written.append(case.id)
    return desk.mark(written, "archived", why=why, url=url)


class LetterArchive:
    """What an archive holds, read whole. Raises KeepfastError, and ConfigError if it is none."""

    def __init__(self, desk: Desk, url: str) -> None:
        self._desk = desk
        self._url = url
        with opened(url, "r") as archived:
            self._lines = [json.loads(line) for line in archived]
        self._gone = [_filed(one) for one in self._lines if desk.index.history(one["case"]) is None]

    @property
    def cases(self) -> int:
        return len(self._lines)

    @property
    def gone(self) -> int:
        """Letters that are not in their topic any more."""
        return len(self._gone)

    def restore(self, *, why: str = "") -> int:
        """Write those letters again and open all cases. Returns how many cases."""
        desk = self._desk
        desk.cluster.write(self._gone)
        desk.refresh()
        count = desk.mark([one["case"] for one in self._lines], "restored", why=why, url=self._url)
        desk.note_action("import", count=len(self._gone), what=self._url)
        return max(count, len(self._gone))


def _archived(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def _filed(one: dict[str, Any]) -> Outgoing:
    try:
        headers = [(str(name), _bytes(value)) for name, value in one["headers"]]
        return Outgoing(one["topic"], _bytes(one["value"]), _bytes(one["key"]), headers, int(one["partition"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"This is no archive of letters: {error!r}.") from error


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


@contextmanager
def opened(url: str, mode: str) -> Iterator[IO[str]]:
    """A text of UTF-8; `-` is standard output. Raises KeepfastError."""
    if url == "-":
        yield sys.stdout
        return
    try:
        if "://" in url:
            try:
                import fsspec
            except ImportError:
                raise KeepfastError(f"{url} needs fsspec: pip install fsspec") from None
            found: Any = fsspec.open(url, f"{mode}b")  # of its types not what the mode gives
            raw: Any = found.open()
        else:
            raw = Path(url).open(f"{mode}b")  # noqa: SIM115 - closed below
    except OSError as error:
        raise KeepfastError(f"{url} cannot be opened: {error}.") from error
    with raw, gzip.open(raw, f"{mode}t", encoding="utf-8") if url.endswith(".gz") else _text(raw, mode) as text:
        yield text  # type: ignore[misc]


def _text(raw: Any, mode: str) -> Any:
    return io.TextIOWrapper(raw, encoding="utf-8", write_through=mode == "w")
