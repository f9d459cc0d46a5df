"""P10: nothing secret gets into a log line, wherever in a field it stands."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from keepfast.redact.cards import CARD_MASK
from keepfast.redact.masking import DEFAULT_RULES, MASKED, MaskingRules
from keepfast.telemetry import clean
from keepfast.telemetry.clean import MAX_TEXT, clean_error, clean_text, escaped, mask_with
from keepfast.telemetry.logs import configure, get_logger

PAN, PASSWORD = "4111 1111 1111 1111", "hunter2-hunter2"


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(clean, "_masking", DEFAULT_RULES)
    root = logging.getLogger("keepfast")
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def logged(**fields: Any) -> str:
    stream = io.StringIO()
    configure(format="json", stream=stream)
    get_logger("keepfast.test").error("something_happened", **fields)
    return stream.getvalue()


@pytest.mark.parametrize(
    "fields",
    [
        {"reason": f"card {PAN} was refused, password={PASSWORD}"},
        {"error": ValueError(f"no account for {PAN} (password: {PASSWORD})")},
        {"password": PASSWORD, "pan": PAN},
        {"context": {"user_password": PASSWORD, "note": PAN, PAN: 1}},
        {"steps": [f"password={PASSWORD}", [f"then {PAN}"]]},
        {"reason": "x" * (MAX_TEXT - 8) + PAN + f" password={PASSWORD}"},
        {"reason": "x" * (MAX_TEXT + 600) + PAN},
        {"note": f"\u200b4111\u200b1111 11111111, postgres://ada:{PASSWORD}@db/x"},
    ],
)
def test_secrets_are_masked_wherever_they_stand(fields: dict[str, Any]) -> None:
    line = logged(**fields)
    for part in (PASSWORD, "1111 1111", "11111111", "4111"):
        assert part not in line, line


def test_lines_of_others_are_masked_like_ours() -> None:
    stream = io.StringIO()
    configure(format="console", stream=stream)
    logger = logging.getLogger("keepfast.handler.charge")
    logger.warning("charged %s with token=%s", PAN, PASSWORD)
    try:
        raise ValueError(f"refused {PAN}")
    except ValueError:
        logger.exception("failed")
    assert stream.getvalue().count(CARD_MASK) == 2
    assert PASSWORD not in stream.getvalue()


def test_what_is_masked_can_be_widened_for_the_process() -> None:
    mask_with(MaskingRules(fields=("shoe_size",), patterns=(r"ACME-\d+",)))
    line = logged(shoe_size="forty two", note="ACME-77 and shoe-size: 42")
    assert "forty" not in line
    assert "ACME" not in line
    assert line.count(MASKED) == 3


def test_the_rules_of_all_apps_in_a_process_hold() -> None:
    mask_with(MaskingRules(fields=("shoe_size",), patterns=(r"ACME-\d+",)))
    mask_with(MaskingRules(fields=("hat_size",), patterns=(r"EMCA-\d+",)))
    line = logged(shoe_size="forty two", hat_size="seven", note="ACME-77, EMCA-77", pin="17")
    for secret in ("forty", "seven", "ACME", "EMCA"):
        assert secret not in line
    assert "17" in line, "what neither app masks is shown"


def test_texts_without_secrets_stay_as_they_are() -> None:
    assert clean_text("orders.payment.v1[3] 17") == "orders.payment.v1[3] 17"
    assert clean_text("y" * MAX_TEXT) == "y" * MAX_TEXT
    assert clean_text("y" * (MAX_TEXT + 7)) == "y" * MAX_TEXT + "… +7"
    assert clean_error(ValueError("no account")) == "ValueError: no account"


def test_only_what_is_asked_for_by_name_is_shown_unmasked() -> None:
    assert escaped(f"{PAN}\n") == f"{PAN}\\n"
    assert clean_text(f"{PAN}\n") == f"{CARD_MASK}\\n"
