"""Archives of letters: JSON lines with their bytes, in a file or at any fsspec URL; `.gz` is compressed.

Each line has the hash of all lines up to it (SHA-256). That finds damage, and lines that were added, removed, changed
or moved; it does not show who wrote the archive, because everyone can compute it. The audit topic does: the entry of
the archiving has the hash of the last line, and only what has that entry is restored, or what a person names by its
hash. So an archive is as trustworthy as the right to write to the audit topic, wherever it is kept.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from keepfast.core.errors import ConfigError, KeepfastError
from keepfast.core.records import Headers, Outgoing, Record
from keepfast.deadletters.letter import MAX_ID
from keepfast.desk.cases import Case
from keepfast.desk.desk import Desk
from keepfast.redact.urls import conceal, shown

MAX_LINE_BYTES: Final = 64 << 20
"""Of one letter, uncompressed."""
MAX_BYTES: Final = 4 << 30
"""Of an archive, uncompressed."""
_START: Final = ""
_HASH: Final = "sha256"


class Archived(NamedTuple):
    """How many cases were archived, and the hash of their archive."""

    cases: int
    digest: str


class ArchivedLetter(NamedTuple):
    """A line of an archive: the case, its letter, and the hash of the archive up to here."""

    case: str
    letter: Outgoing
    digest: str


def archive(desk: Desk, cases: Iterable[Case], url: str, *, why: str = "") -> Archived:
    """Write the letters of these cases, and mark them as archived. Raises KeepfastError."""
    written: list[str] = []
    digest, size = _START, 0
    with opened_text(url) as out:
        for case in cases:
            record = desk.cluster.record_at(case.letter)
            if record is None:
                continue
            line, digest = _line_of({"case": case.id, **_archived(record)}, digest)
            size += len(line)
            if len(line) > MAX_LINE_BYTES or size > MAX_BYTES:
                raise KeepfastError(
                    f"An archive holds {MAX_BYTES >> 30} GiB, and {MAX_LINE_BYTES >> 20} MiB of one letter;"
                    f" with {case.id} it would be more. Nothing was marked. Archive fewer cases at once."
                )
            out.write(line)
            written.append(case.id)
    return Archived(desk.mark(written, "archived", why=why, url=shown(url), details={_HASH: digest}), digest)


class LetterArchive:
    """An archive that this desk wrote, or whose `digest` a person names. It is read whole at once, for its hash and
    its size, and again when it is restored. Raises KeepfastError, and ConfigError if it is none.
    """

    def __init__(self, desk: Desk, url: str, digest: str = "") -> None:
        self._desk = desk
        self._url = url
        self._cases: list[str] = []
        self._digests: list[str] = []
        self._gone: set[int] = set()
        partitions = {name: desk.cluster.spans(name).keys() for name in desk.options.topics}
        for number, line in enumerate(read_archive(url, partitions)):
            self._cases.append(line.case)
            self._digests.append(line.digest)
            if desk.index.history(line.case) is None:
                self._gone.add(number)
        self._partitions = partitions
        self._refuse_unknown(digest.lower())

    @property
    def cases(self) -> int:
        return len(self._cases)

    @property
    def gone(self) -> int:
        """Letters that are not in their topic any more."""
        return len(self._gone)

    def restore(self, *, why: str = "") -> int:
        """Write those letters again and open all cases, which is one entry of the audit. Returns how many cases."""
        desk, url = self._desk, shown(self._url)
        with desk.audited("import", what=url, why=why, details={"letters": len(self._gone)}) as audited:
            audited.done = "letters may have been written again"
            desk.cluster.write(self._missing_letters())
            audited.count = len(self._gone)
            audited.done = "all letters were written again; not all cases may be open"
            desk.refresh()
            marks = desk.marks_of(self._cases, "restored", why=why, url=url)
            desk.write_facts(marks)
            audited.count = count = max(len(marks), len(self._gone))
        desk.refresh_facts()
        return count

    def _refuse_unknown(self, digest: str) -> None:
        last = self._digests[-1] if self._digests else _START
        if digest and digest != last:
            raise ConfigError(f"{shown(self._url)} has the hash {last}, not {digest}: it is another archive.")
        if not digest and last and not self._desk.has_archived(_HASH, last):
            raise ConfigError(
                f"{shown(self._url)} is not an archive that this desk wrote, or it was changed since: the audit has no"
                f" entry with its hash {last}. If it comes from a desk of other brokers and you trust it, compare the"
                " hash with the one that was printed there, and name it: --sha256 HASH."
            )

    def _missing_letters(self) -> Iterator[Outgoing]:
        for number, line in enumerate(read_archive(self._url, self._partitions)):
            if number >= len(self._digests) or line.digest != self._digests[number]:
                raise ConfigError(f"{shown(self._url)} was changed while it was read; nothing more was written.")
            if number in self._gone:
                yield line.letter


def read_archive(url: str, partitions: Mapping[str, Collection[int]]) -> Iterator[ArchivedLetter]:
    """The lines of an archive whose letters belong to these topics, by their partitions. One line is in memory.

    Raises ConfigError for everything else, whatever the file holds; KeepfastError if it cannot be opened.
    """
    digest = _START
    for number, line in enumerate(_lines(url), 1):
        try:
            fields = json.loads(line)
            expected = fields.pop(_HASH)
            _, digest = _line_of(fields, digest)
            case, letter = _letter_of(fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ConfigError(f"{shown(url)} is no archive of letters: line {number} cannot be read.") from None
        if digest != expected:
            raise ConfigError(f"{shown(url)} was changed: the hash of line {number} is not that of its contents.")
        if letter.topic not in partitions:
            raise ConfigError(
                f"{shown(url)} has a letter of {letter.topic!r} in line {number}. Name that dead-letter topic, too, if"
                " letters of it are to be written."
            )
        if letter.partition not in partitions[letter.topic]:
            raise ConfigError(f"Line {number} of {shown(url)}: {letter.topic} has no partition {letter.partition}.")
        yield ArchivedLetter(case, letter, digest)


def _line_of(fields: dict[str, Any], before: str) -> tuple[str, str]:
    """The line with its hash, and the hash: of the one before it and of the fields in a canonical form."""
    text = json.dumps(fields, sort_keys=True)
    digest = sha256(f"{before}\n{text}".encode()).hexdigest()
    return json.dumps({**fields, _HASH: digest}) + "\n", digest


def _archived(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def _letter_of(fields: dict[str, Any]) -> tuple[str, Outgoing]:
    """The case and the letter. Raises ValueError, TypeError and KeyError."""
    case, partition = _text(fields["case"]), fields["partition"]
    if not 0 < len(case) <= MAX_ID or type(partition) is not int:
        raise ValueError("a case or a partition")
    headers: Headers = [(_text(name), _bytes(value)) for name, value in fields["headers"]]
    return case, Outgoing(_text(fields["topic"]), _bytes(fields["value"]), _bytes(fields["key"]), headers, partition)


def _text(given: object) -> str:
    """A text that can be written. Raises TypeError and ValueError (half of a surrogate pair)."""
    if not isinstance(given, str):
        raise TypeError("no text")
    given.encode()
    return given


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def _bytes(text: object) -> bytes | None:
    return None if text is None else b64decode(_text(text), validate=True)


def _lines(url: str) -> Iterator[bytes]:
    """The lines, uncompressed as they are read, up to the limits. Raises KeepfastError."""
    size = 0
    with _opened(url, "rb") as raw:
        try:
            lines = gzip.GzipFile(fileobj=raw) if url.endswith(".gz") else raw
            while line := lines.readline(MAX_LINE_BYTES + 1):
                size += len(line)
                if len(line) > MAX_LINE_BYTES or size > MAX_BYTES:
                    raise ConfigError(
                        f"{shown(url)} is no archive of letters: it has more than {MAX_BYTES >> 30} GiB, or more than"
                        f" {MAX_LINE_BYTES >> 20} MiB in a line."
                    )
                yield line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ConfigError(f"{shown(url)} is no archive of letters: {error}.") from None
        except OSError as error:
            raise KeepfastError(f"{shown(url)} cannot be read: {conceal(str(error), url)}.") from None


@contextmanager
def opened_text(url: str) -> Iterator[IO[str]]:
    """A text of UTF-8 to write; `-` is standard output. Raises KeepfastError."""
    if url == "-":
        yield sys.stdout
        return
    with _opened(url, "wb") as raw:
        if url.endswith(".gz"):
            with gzip.open(raw, "wt", encoding="utf-8") as text:
                yield text
        else:
            with io.TextIOWrapper(raw, encoding="utf-8", write_through=True) as text:
                yield text


@contextmanager
def _opened(url: str, mode: str) -> Iterator[Any]:
    """The file, or the object of fsspec. Raises KeepfastError, without the credentials in the URL."""
    try:
        if "://" in url:
            try:
                import fsspec
            except ImportError:
                raise KeepfastError(f"{shown(url)} needs fsspec: pip install fsspec") from None
            found: Any = fsspec.open(url, mode)  # of its types not what the mode gives
            raw: Any = found.open()
        else:
            raw = Path(url).open(mode)  # noqa: SIM115 - closed below
    except KeepfastError:
        raise
    except Exception as error:  # noqa: BLE001 - every service behind fsspec has errors of its own
        text = conceal(f"{type(error).__name__}: {error}".partition("\n")[0], url)
        raise KeepfastError(f"{shown(url)} cannot be opened: {text}.") from None
    with raw:
        yield raw
