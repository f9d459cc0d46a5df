"""The detector takes any bytes, in linear time; recall and false alarms on a small corpus."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.card_corpus import KINDS, samples, with_check
from bench.cards import LEAST_WRITTEN, MAX_MS, MISSED_BY_DESIGN, RANDOM, large_values, measure, milliseconds
from keepfast.redact.cards import candidates, luhn
from keepfast.redact.folding import fold, plain
from keepfast.redact.sensitive import LOOKALIKE_FIELDS, CardNumbers, json_paths
from tests.support.thorough import examples

digit_soup = st.text(alphabet='0123456789 -.\\u{}[]:,"abF+４\u200b', max_size=200).map(
    lambda text: text.encode("utf-8", "surrogatepass")
)
header_names = st.text(max_size=40)
policies = st.sampled_from(
    [CardNumbers(), CardNumbers(without_sign="all"), CardNumbers(ignore_fields=LOOKALIKE_FIELDS, without_sign="none")]
)


@given(
    policy=policies,
    key=st.none() | st.binary(max_size=50) | digit_soup,
    value=st.none() | st.binary(max_size=300) | digit_soup,
    headers=st.lists(st.tuples(header_names, st.none() | st.binary(max_size=50) | digit_soup), max_size=4),
)
@example(policy=CardNumbers(), key=b"\xff\xfe\x00", value=b"\\u" * 50, headers=[("\ud800" * 20, b"1")])
@settings(max_examples=examples(400))
def test_any_record_can_be_scanned(
    policy: CardNumbers, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    found = policy.scan(key, value, headers)
    assert found is None or str(found).isprintable()


WAYS = ("{0}", "%3{0}", "%253{0}", "\\u003{0}", "\\\\u003{0}", "&#x3{0};", "&amp;#x3{0};", "\\uff1{0}", "%D9%A{0}")
BETWEEN = [*["" for _ in range(12)], *" -+\u00a0\u2013\u200b", "%20", "\\u00a0", "&nbsp;", "&amp;shy;", "%C2%A0"]
around = st.text(alphabet="ab0 .\u00a0ж漢٤😀\\%&;", max_size=12)


def other_digit(digit: str, zero: int) -> str:
    return chr(zero + int(digit))


@given(
    before=around,
    ways=st.lists(
        st.tuples(st.sampled_from((*WAYS, 0x660, 0x6F0, 0x966, 0xFF10, 0x1D7CE)), st.sampled_from(BETWEEN)),
        min_size=16,
        max_size=16,
    ),
    after=around,
    odd=st.sampled_from([b"", b"\xff", b"\xd9"]),
    letter=st.sampled_from([b"", b"\\u00f6", b"&#1079;", b"%C3%B6", b"&#x4e2d;", b"&amp;#246;", b"%E4%B8%AD"]),
    behind=st.sampled_from([b"", b" and" * 2000]),
)
@settings(max_examples=examples(400))
def test_detection_folds_in_a_faster_way_than_masking_and_finds_the_same(
    *, before: str, ways: list[tuple[str | int, str]], after: str, odd: bytes, letter: bytes, behind: bytes
) -> None:
    """`plain` is for detection, and treats a text with few escapes differently; `fold`, which knows positions, for
    masking.
    """
    written = "".join(
        (way.format(digit) if isinstance(way, str) else other_digit(digit, way)) + gap
        for digit, (way, gap) in zip("4111111111111111", ways, strict=True)
    )
    data = odd + before.encode() + letter + written.encode() + letter + after.encode() + odd + behind
    slowly, quickly = (list(candidates(one)) for one in (fold(data).data, plain(data)))
    assert [one.digits for one in quickly] == [one.digits for one in slowly]


@given(body=st.text(alphabet="0123456789", min_size=1, max_size=24))
def test_exactly_one_check_digit_is_right(body: str) -> None:
    assert sum(luhn(f"{body}{last}".encode()) for last in range(10)) == 1


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=12,
    ),
    st.data(),
)
def test_a_place_in_json_leads_to_the_value(tree: object, data: st.DataObject) -> None:
    """A mark is put at a random leaf; the place of its byte leads back to it."""
    mark = "MARK-4f1c"
    tree = {"root": [tree, {"here": mark}], "z": 1}
    text = json.dumps(
        tree, ensure_ascii=data.draw(st.booleans()), indent=data.draw(st.sampled_from([None, 1]))
    ).encode()
    (path,) = json_paths(text, [text.index(mark.encode())])
    assert path is not None
    at: object = tree
    for step in path.steps:
        at = at[step]  # type: ignore[index]
    assert at == mark


BIG = 800_000
HOSTILE = {
    "digits": b"4" * BIG,
    "single digits": b"4 " * (BIG // 2),
    "mixed gaps": b"4-1 " * (BIG // 4),
    "groups of four": b"4111 " * (BIG // 5),
    "dots": b"4111111111111111.1" * (BIG // 18),
    "open brackets": b"[" * BIG + b'"4222222222222"',
    "an open text": b'["4222222222222","' + b'\\"' * (BIG // 2),
    "backslashes": b"\\" * BIG + b"u0034",
    "escapes": b"\\u0034x" * (BIG // 7),
    "article numbers": b'["4006381333931",' * (BIG // 17),
    "full-width": "４x".encode() * (BIG // 4),
    "zeros behind a dot": b"4111111111111111.0" * (BIG // 18),
    "not UTF-8": b"\xff4\xc3" * (BIG // 3),
    "control bytes": b"\x104111111111111112" * (BIG // 17),
    "scientific": b"4.111111111111112E15," * (BIG // 21),
    "rows of escaped digits": (b"%34" * 16 + b"&") * (BIG // 49),
    "rows of entities": (b"&#1636;" * 16 + b"x") * (BIG // 113),
    "base64": b"QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU2Nzg5" * (BIG // 48),
}


@pytest.mark.timing
@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_with_the_size_and_no_faster(name: str) -> None:
    """Measured on the processor's clock, a quarter against the whole: a square would be 16 times, not 4."""
    policy, value = CardNumbers(ignore_fields=("nothing",)), HOSTILE[name]

    def cost_s(data: bytes) -> float:
        begun = time.process_time()
        policy.scan(None, data)
        return time.process_time() - begun

    quarter = min(cost_s(value[: BIG // 4]) for _ in range(2))
    assert cost_s(value) < 10 * quarter + 0.2


@pytest.mark.timing
def test_1_mb_of_what_programs_write_takes_less_than_the_target() -> None:
    """Twice the target, because other tests run beside this one; number by number, some take four times."""
    slow = {name: taken for name, value in large_values() if (taken := milliseconds(value)) > 2 * MAX_MS}
    assert not slow


WRONG = b"4111111111111112"
CARD = b"4111111111111111"


@pytest.mark.parametrize("gap", [b",", b"\n", b"x", b" ", b"\x10", b"E15,", b'","', b".5,", b",2026-11-18,"])
@pytest.mark.parametrize("written", [CARD, b"4111-1111-1111-1111", b"4111.1111.1111.1111", b"41111 11111111111"])
@pytest.mark.parametrize("before", [0, 30, 2_000])
def test_one_card_among_many_numbers_is_found_in_its_place(gap: bytes, written: bytes, before: int) -> None:
    """Many numbers are judged at once, and few one by one."""
    data = (WRONG + gap) * before + b"," + written + b"," + (WRONG + gap) * 40
    assert {one.start for one in candidates(data)} == {data.index(b"," + written + b",") + 1}


@pytest.mark.parametrize("before", [30, 2_000])
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (b"4.111111111111112E15,", b"4.111111111111111E15,"),
        (b"\x104111111111111112", b"\x1041111111111111112\x10"),
        (b"0.4111111111111111,", b"4111111111111111,"),
    ],
)
def test_one_card_among_many_that_are_written_alike_is_found(wrong: bytes, right: bytes, before: int) -> None:
    data = wrong * before + right + wrong * before
    assert {one.digits for one in candidates(data)} == {CARD}
    assert not list(candidates(wrong * 2 * before))


@pytest.mark.parametrize("many", [1, 400])
@pytest.mark.parametrize(
    "digit", ["%3{0}", "\\u003{0}", "&#x3{0};", "&#163{0};", "&#177{0};", "a%3{0}", "&amp;#x3{0};"]
)
@pytest.mark.parametrize("behind", [b"", b"+123", b"5+123 ", b"%41 ", b"&", b";", b"x", b"%4", b"\\u00", b"&#"])
def test_rows_of_escaped_digits_are_decoded_as_one_by_one(digit: str, behind: bytes, many: int) -> None:
    """The positions of `fold` are exact, so it decodes each by itself."""
    row = "".join(digit.format(one) for one in "6789698769876").encode() + behind
    data = row * many + b"%34"
    assert plain(data).translate(None, b"?") == fold(data).data.translate(None, b"?")


def test_recall_and_false_alarms_on_a_small_corpus() -> None:
    tally = measure(CardNumbers(), samples(20_000, seed=11))
    assert sum(tally.seen.values()) == 20_000
    for kind in KINDS:
        assert tally.seen[kind.name] > 50, kind.name
        rate = tally.rate((kind.name,))
        if kind.holds_card and kind.name != MISSED_BY_DESIGN:
            # 18 digits in a field `id` are taken for an id that grows with the time, unless there is a sign.
            assert rate >= (LEAST_WRITTEN if kind.name == "card, solid in a field" else 1.0), kind.name
        elif kind.name not in RANDOM and kind.name not in ("GTIN-14", "64-bit hash"):
            assert rate == 0.0, kind.name
    assert tally.recall >= LEAST_WRITTEN
    assert tally.false_alarms < 0.002
    assert tally.rate(RANDOM) < 0.03


def test_field_names_take_the_false_alarms_away() -> None:
    tally = measure(CardNumbers(ignore_fields=(*LOOKALIKE_FIELDS, "hash", "reference")), samples(10_000, seed=12))
    assert tally.false_alarms == 0.0
    assert tally.rate(RANDOM) == 0.0


def test_the_corpus_is_the_same_every_time() -> None:
    assert list(samples(200, seed=3)) == list(samples(200, seed=3))


@given(st.randoms(use_true_random=False), st.sampled_from([13, 14, 15, 16, 17, 18, 19]))
def test_a_card_with_a_sign_is_found_at_any_length_that_its_issuer_allows(rng: object, length: int) -> None:
    number = with_check(rng, "6304", length)  # type: ignore[arg-type]
    assert CardNumbers().scan(None, json.dumps({"pan": number}).encode())
