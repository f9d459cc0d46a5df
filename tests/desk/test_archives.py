"""An archive is read back exactly, or refused with one sentence, whatever the file holds."""

from __future__ import annotations

import base64
import gzip
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.errors import ConfigError
from keepfast.desk import archives
from keepfast.desk.archives import ArchivedLetter, read_archive

DLQ = "orders.payment.dlq"
PARTITIONS = {DLQ: range(3)}


def line_of(number: int, **changes: Any) -> dict[str, Any]:
    value = base64.b64encode(b"v%d" % number).decode()
    return {
        "case": f"g/orders/0/{number}",
        "topic": DLQ,
        "partition": 0,
        "offset": number,
        "key": None,
        "value": value,
        "headers": [["h", value]],
    } | changes


def signed(fields: Sequence[dict[str, Any]]) -> bytes:
    digest, lines = "", []
    for each in fields:
        line, digest = archives._line_of(each, digest)
        lines.append(line)
    return "".join(lines).encode()


def reads(content: bytes, name: str = "old.jsonl") -> list[ArchivedLetter]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return list(read_archive(str(path), PARTITIONS))


GOOD = signed([line_of(number) for number in range(4)])


@pytest.mark.parametrize("name", ["old.jsonl", "old.jsonl.gz"])
def test_what_was_written_is_read_back(name: str) -> None:
    found = reads(gzip.compress(GOOD) if name.endswith("gz") else GOOD, name)
    assert [(line.case, line.letter.value, line.letter.headers) for line in found] == [
        (f"g/orders/0/{number}", b"v%d" % number, [("h", b"v%d" % number)]) for number in range(4)
    ]
    assert len({line.digest for line in found}) == 4


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b"[1]\n",
        b"{}\n",
        b'{"case":{}}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"9" * 10_000 + b"\n",
        b'{"sha256": null}\n',
        *(
            signed([line_of(0, **changes)])
            for changes in (
                {"case": ""},
                {"case": "x" * 3_000},
                {"case": "\ud800"},
                {"case": 1},
                {"topic": "orders.victim.v1"},
                {"topic": None},
                {"topic": [DLQ]},
                {"partition": 99},
                {"partition": -1},
                {"partition": True},
                {"partition": 1e400},
                {"partition": "0"},
                {"value": "%%"},
                {"value": 5},
                {"key": "é"},
                {"headers": 5},
                {"headers": [["h"]]},
                {"headers": [[None, None]]},
                {"headers": [["\ud800", None]]},
                {"headers": {"h": None}},
            )
        ),
    ],
    ids=range(28),
)
def test_what_is_no_letter_of_these_topics_is_refused(content: bytes) -> None:
    for name in ("old.jsonl", "old.jsonl.gz"):
        with pytest.raises(ConfigError, match=r"line|Line"):
            reads(gzip.compress(content) if name.endswith("gz") else content, name)


@pytest.mark.parametrize(
    "content",
    [b"hello", gzip.compress(GOOD)[:60], gzip.compress(GOOD)[:-4] + b"\x00" * 4],
    ids=["not", "torn", "wrong length"],
)
def test_what_is_not_or_only_partly_compressed_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="is no archive of letters"):
        reads(content, "old.jsonl.gz")


def test_lines_that_were_moved_added_or_left_out_are_noticed() -> None:
    lines = GOOD.splitlines(keepends=True)
    for changed in (lines[1:], lines[:1] + lines[2:], [lines[1], lines[0]], [*lines, lines[0]]):
        with pytest.raises(ConfigError, match="was changed: the hash of line"):
            reads(b"".join(changed))
    assert reads(b"".join(lines[:-1]))[-1].digest != reads(GOOD)[-1].digest  # the end is found by the last hash


@given(st.binary(), st.booleans())
def test_whatever_the_file_holds_it_is_refused_in_one_sentence(content: bytes, compressed: bool) -> None:
    for given_content in (content, GOOD + content):
        try:
            found = reads(gzip.compress(given_content) if compressed else given_content, f"a{'.gz' * compressed}")
        except ConfigError:
            continue
        assert [line.case for line in found] == [f"g/orders/0/{number}" for number in range(len(found))]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(DLQ),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*line_of(0), "sha256"]), JSON))
def test_whatever_a_signed_line_says_it_is_a_letter_or_refused(changes: dict[str, Any]) -> None:
    changes.pop("sha256", None)
    try:
        [found] = reads(signed([line_of(0) | changes]))
    except ConfigError:
        return
    assert found.letter.topic == DLQ
    assert found.letter.partition in PARTITIONS[DLQ]


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at: int, flip: int) -> None:
    changed = bytearray(GOOD)
    changed[at] ^= flip
    try:
        found = reads(bytes(changed))
    except ConfigError:
        return
    assert [(line.case, line.letter, line.digest) for line in found] == [
        (line.case, line.letter, line.digest) for line in reads(GOOD)
    ]  # between the fields only


def test_a_compressed_bomb_is_given_up_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(archives, "MAX_BYTES", 3 << 20)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"case":"' + b"a" * (200 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="MiB in a line"):
            list(read_archive(str(path), PARTITIONS))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    many = signed([line_of(0, value=base64.b64encode(bytes(500_000)).decode())] * 6)
    assert len(reads(many[: many.index(b"\n") + 1])) == 1
    with pytest.raises(ConfigError, match="GiB"):
        reads(gzip.compress(many), "many.jsonl.gz")
