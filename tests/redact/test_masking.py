"""Masking: no card number and no secret is left in what is shown, and masking twice is masking once."""

from __future__ import annotations

import json
import re
import time
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.card_corpus import samples
from keepfast.core.errors import ConfigError
from keepfast.redact.cards import CARD_MASK, luhn, mask_cards
from keepfast.redact.folding import fold
from keepfast.redact.masking import MASKED, MaskingRules, mask
from keepfast.redact.sensitive import CardNumbers
from tests.support.thorough import examples

VISA = "4111111111111111"
RULES = MaskingRules()
SECRET = "hunter2-s3cr3t"
WIDEST = CardNumbers(without_sign="all", token_prefixes=())

digit_texts = st.text(alphabet="0123456789014 -.,:/[]\\n４\u200bx", max_size=120)
cards = st.sampled_from(
    [VISA, "4111 1111 1111 1111", "3782-822463-10005", "6212345678901234500", "４１１１１１１１１１１１１１１１"]
)


def leftover(text: str) -> list[str]:
    """Runs of digits that pass the check; times and the like (0 and 1 in front) and fractions may stay."""
    folded = fold(text.encode("utf-8", "surrogatepass")).data
    runs = re.finditer(rb"(?<![0-9])(?<![0-9]\.)[2-9][0-9]{12,18}(?![0-9])", folded)
    return [run[0].decode() for run in runs if luhn(run[0])]


@given(st.lists(digit_texts | cards | st.text(max_size=20), max_size=5).map("".join))
@example("4111111111111111.4111111111111111")
@example("1.2 0.4111111111111111")
@example(f"12 {VISA} 4111 1111 1111 1111 0005")
@settings(max_examples=examples(600))
def test_no_card_number_is_left_in_a_masked_text(text: str) -> None:
    masked = mask_cards(text)
    assert leftover(masked) == []
    assert WIDEST.scan(masked.encode("utf-8", "surrogatepass"), None) is None
    assert mask_cards(masked) == masked


PIECES = [
    *("password", "token=", '"secret": "', '\\"', '"', "'", "{", "}", "[", "]", ":", "=", " ", "\n", "x", "1"),
    *(MASKED, CARD_MASK, VISA, "Authorization: Bearer ", "://u:p@h", "eyJhbGciOiJ.eyJzdWI.x"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@settings(max_examples=examples(600))
def test_masking_twice_is_masking_once(text: str) -> None:
    masked = mask(text)
    assert mask(masked) == masked
    assert WIDEST.scan(masked.encode(), None) is None


@given(st.text(max_size=200))
def test_any_text_can_be_masked(text: str) -> None:
    RULES.text(text)


def test_what_the_detector_finds_is_gone_from_every_masked_record_of_the_corpus() -> None:
    for sample in samples(3_000, seed=5):
        text = mask(sample.value.decode("utf-8", "backslashreplace"))
        assert WIDEST.scan(None, text.encode()) is None, sample.kind


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"card {VISA} refused", f"card {CARD_MASK} refused"),
        ("4111 1111 1111 1111 12/27", f"{CARD_MASK} 12/27"),
        (f"tok_{VISA}", f"tok_{CARD_MASK}"),
        ("4222222222222", CARD_MASK),
        ("at 1700000000000 offset 123456789012", "at 1700000000000 offset 123456789012"),
        ("score 0.4111111111111111", "score 0.4111111111111111"),
        ("2026-01-27 10:30:00.123", "2026-01-27 10:30:00.123"),
        ("4111\\u0031111 1111 1111", f"{CARD_MASK}"),
        (f"{VISA}{VISA}", CARD_MASK),
        ("7" * 65, CARD_MASK),
    ],
)
def test_card_numbers_in_texts(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f"login failed (password: {SECRET}, user: joe)",
        f'{{"password": "{SECRET}", "user": "joe"}}',
        f'{{"user": {{"userPassword": "x\\"{SECRET}"}}}}',
        json.dumps({"body": json.dumps({"clientSecret": f'a"{SECRET}"b', "user": "joe"})}),
        f"{{'api_key': '{SECRET}'}}",
        f"GET /x?access_token={SECRET}&user=joe",
        f"Authorization: Basic {SECRET}\r\nHost: x",
        f"authorization: Digest a=b, response={SECRET}",
        f"Cookie: a=b; session={SECRET}",
        f"X-Api-Key: {SECRET}",
        f'credentials: {{"u": "joe", "p": ["{SECRET}"]}} rest',
        f"connect to postgres://joe:{SECRET}@db:5432/x failed",
        f"sent Bearer {SECRET}",
        f"sent bEARER {SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f'password="{SECRET}',
    ],
)
def test_secrets_in_texts(text: str) -> None:
    masked = mask(text)
    assert SECRET not in masked
    assert MASKED in masked
    for kept in ("joe", "Host: x", "rest", "failed"):
        assert kept in masked or kept not in text or "://" in text or "credentials" in text


def test_words_that_only_look_like_secrets_stay() -> None:
    for text in ("max_tokens: 5", "the password is wrong", "tokenizer=fast", "spin: up", "company: x"):
        assert mask(text) == text


def test_a_tree_is_masked_by_names_and_by_content() -> None:
    tree = {
        "user": {"name": "joe", "Password": SECRET, "ids": [1, 2], "pin": None},
        "api-key": {"deep": [SECRET]},
        "n": int(VISA),
        "f": float(VISA),
        "t": 1700000000000,
        "text": f"pay {VISA} password={SECRET}",
        VISA: True,
        "raw": b"\xff" + VISA.encode(),
        "d": Decimal(VISA),
        5: (1.5, None),
    }
    assert RULES.tree(tree) == {
        "user": {"name": "joe", "Password": MASKED, "ids": [1, 2], "pin": None},
        "api-key": MASKED,
        "n": CARD_MASK,
        "f": CARD_MASK,
        "t": 1700000000000,
        "text": f"pay {CARD_MASK} password={MASKED}",
        CARD_MASK: MASKED,
        "raw": f"\\xff{CARD_MASK}",
        "d": CARD_MASK,
        "5": [1.5, None],
    }


def test_a_tree_deeper_than_any_real_one_is_cut_and_a_broken_object_does_no_harm() -> None:
    class Broken:
        def __str__(self) -> str:
            raise ValueError(SECRET)

    tree: object = Broken()
    assert RULES.tree([tree]) == ["[Broken]"]
    for _ in range(5000):
        tree = [tree]
    assert MASKED in str(RULES.tree(tree))
    assert RULES.tree(10**5000) == 10**5000


def test_headers_are_masked_by_name_and_shown_as_text() -> None:
    assert RULES.header("Authorization", b"x") == MASKED
    assert RULES.header("x", None) is None
    assert RULES.header("x", b"a\xff" + VISA.encode()) == f"a\\xff{CARD_MASK}"


def test_users_add_fields_and_patterns() -> None:
    rules = MaskingRules(fields=("customerName",), patterns=(r"ACC-\d+", "masked"))
    assert (
        rules.text("customer_name=joe, ACC-123, password=x masked")
        == f"customer_name={MASKED}, {MASKED}, password=x {MASKED}"
    )
    assert rules.text(rules.text("customer_name=joe masked")) == rules.text("customer_name=joe masked")
    assert rules.tree({"CUSTOMER-NAME": "joe"}) == {"CUSTOMER-NAME": MASKED}


def test_wrong_rules_are_refused_with_the_reason() -> None:
    for patterns, why in ((("(",), "not a regular expression"), (("x*",), "empty"), ("abc", "tuple")):
        with pytest.raises(ConfigError, match=why):
            MaskingRules(patterns=patterns)  # type: ignore[arg-type]


BIG = 400_000


@pytest.mark.timing
@pytest.mark.parametrize(
    "piece",
    [
        *("4111 ", "1 ", "4", "4.", "a", VISA + " ", "\\u0034", '\\"', "://", "eyJ", "-----BEGIN PRIVATE KEY-----"),
        *("password=[a] ", 'password="', "password:{", "secret='x' "),
    ],
)
def test_masking_time_grows_with_the_size_and_no_faster(piece: str) -> None:
    def cost_s(text: str) -> float:
        begun = time.process_time()
        mask(text)
        return time.process_time() - begun

    whole = piece * (BIG // len(piece))
    quarter = min(cost_s(whole[: BIG // 4]) for _ in range(2))
    assert cost_s(whole) < 10 * quarter + 0.2
