from __future__ import annotations

from keepfast.redact.masking import MASKED
from tests.settings.loader import Loader


def test_more_names_and_patterns_are_masked_beside_the_usual_ones(loader: Loader) -> None:
    toml = "[masking]\nfields = ['customerName']\npatterns = ['ACME-\\d+', 'x{3}']"
    rules = loader.load(toml=toml).masking.rules
    assert rules.text("customer_name=Ada password=hunter2 ACME-77 xxx") == " ".join(
        [f"customer_name={MASKED}", f"password={MASKED}", MASKED, MASKED]
    )
    environ = {"KEEPFAST_MASKING_FIELDS": "shoe_size, hat", "KEEPFAST_MASKING_PATTERNS": "a,b\nACME-\\d+\n"}
    reported = loader.load(environ, toml=toml).masking
    assert (reported.fields, reported.patterns) == (("shoe_size", "hat"), ("a,b", r"ACME-\d+"))


def test_invalid_patterns_are_reported_by_their_number_and_not_repeated(loader: Loader) -> None:
    first, second = loader.problems(settings={"masking": {"patterns": ["secret(", "ok", "s*"]}})
    assert first.startswith("code: masking.patterns: pattern number 1 is no regular expression: missing )")
    assert second == "code: masking.patterns: pattern number 3 matches the empty text; let it match something."
    assert "secret" not in first
    assert "must be a list of regular expressions" in loader.problem(settings={"masking": {"patterns": 3}})
