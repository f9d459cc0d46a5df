"""The detector for card numbers on a made-up corpus: what it finds, what it mistakes for one, what a record costs."""

from __future__ import annotations

import base64
import itertools
import json
import random
import time
import urllib.parse
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bench.card_corpus import KINDS, WRITTEN, Sample, digits, order, samples, with_check
from keepfast.redact.sensitive import LOOKALIKE_FIELDS, CardNumbers

COUNT: Final = 1_000_000
MISSED_BY_DESIGN: Final = "card, rare length, no sign"
RANDOM: Final = frozenset({"16 random digits", "13-19 random digits"})

HEADERS_AND_IDS: Final = tuple(
    kind
    for kind in KINDS
    if kind.name.startswith(("headers: ", "ids: ")) or kind.name in ("UUID", "hex id", "snowflake id")
)

LEAST_RECALL: Final = 0.999
LEAST_WRITTEN: Final = 0.995
MAX_ALARMS_OF_IDS: Final = 1e-6
MAX_MS: Final = 50.0
"""For a value of 1 MB."""
MAX_FALSE_ALARMS: Final = 0.002
"""Among records without a card, random digits left out: a fixed share of those passes any check there is."""


@dataclass(slots=True)
class Tally:
    """What came of a corpus. CPU times are of the scan alone."""

    seen: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)
    cpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    bytes_seen: Counter[str] = field(default_factory=Counter)

    def rate(self, kinds: Iterable[str]) -> float:
        """The share of the records of these classes in which a card number was reported."""
        names = list(kinds)
        return sum(self.reported[name] for name in names) / max(1, sum(self.seen[name] for name in names))

    @property
    def recall(self) -> float:
        return self.rate(kind.name for kind in KINDS if kind.holds_card and kind.name != MISSED_BY_DESIGN)

    @property
    def written(self) -> float:
        """Recall of the forms that payment companies know."""
        return self.rate(kind.name for kind in KINDS if kind.name.startswith(WRITTEN))

    @property
    def false_alarms(self) -> float:
        return self.rate(kind.name for kind in KINDS if not kind.holds_card and kind.name not in RANDOM)

    def ns_per_record(self, kinds: Iterable[str] | None = None) -> float:
        names = list(self.seen if kinds is None else kinds)
        return sum(self.cpu_s[name] for name in names) / max(1, sum(self.seen[name] for name in names)) * 1e9


def measure(policy: CardNumbers, corpus: Iterator[Sample]) -> Tally:
    """Scan a corpus in slices, sorted by class, so that the clock is read per slice and not per record."""
    tally = Tally()
    while chunk := list(itertools.islice(corpus, 20_000)):
        chunk.sort(key=lambda sample: sample.kind)
        for kind, group in itertools.groupby(chunk, key=lambda sample: sample.kind):
            _scan(policy, kind, list(group), tally)
    return tally


def _scan(policy: CardNumbers, kind: str, group: list[Sample], tally: Tally) -> None:
    scan = policy.scan
    begun = time.process_time()
    reported = sum(1 for _, _, key, value, headers in group if scan(key, value, headers) is not None)
    tally.cpu_s[kind] += time.process_time() - begun
    tally.seen[kind] += len(group)
    tally.reported[kind] += reported
    tally.bytes_seen[kind] += sum(len(sample.value) for sample in group)


def run(*, as_json: bool, count: int = COUNT) -> list[str]:
    """Measure and print; what missed its target is returned."""
    usual = measure(CardNumbers(), samples(count))
    ways = {
        "as set by default": usual,
        "ignore_fields=LOOKALIKE_FIELDS": measure(CardNumbers(ignore_fields=LOOKALIKE_FIELDS), samples(count // 10)),
        'without_sign="none"': measure(CardNumbers(without_sign="none"), samples(count // 10)),
        'without_sign="all"': measure(CardNumbers(without_sign="all"), samples(count // 10)),
    }
    ids = measure(CardNumbers(), samples(count, kinds=HEADERS_AND_IDS)).rate(kind.name for kind in HEADERS_AND_IDS)
    large_ms = {name: milliseconds(value) for name, value in large_values()}
    if as_json:
        _print_json(usual)
    else:
        _print(usual, ways, count)
    figures = {"written_recall": usual.written, "false_alarms_of_headers_and_ids": ids, "ms_for_1_mb": large_ms}
    print(json.dumps(figures) if as_json else f"  {figures}")
    missed = []
    if usual.recall < LEAST_RECALL:
        missed.append(f"cards: recall {usual.recall:.5f}, target {LEAST_RECALL}")
    if usual.false_alarms > MAX_FALSE_ALARMS:
        missed.append(f"cards: false alarms {usual.false_alarms:.5f}, target {MAX_FALSE_ALARMS}")
    if usual.written < LEAST_WRITTEN:
        missed.append(f"cards: recall of written forms {usual.written:.5f}, target {LEAST_WRITTEN}")
    if ids > MAX_ALARMS_OF_IDS:
        missed.append(f"cards: false alarms in headers and ids {ids:.7f}, target {MAX_ALARMS_OF_IDS}")
    slow = {name: taken for name, taken in large_ms.items() if taken > MAX_MS}
    if slow:
        missed.append(f"cards: 1 MB took {slow} ms, target {MAX_MS}")
    return missed


def large_values() -> Iterator[tuple[str, bytes]]:
    """Values of 1 MB without a card: of orders, and of what a detector may find expensive."""
    rng, size = random.Random(3), 1_000_000
    orders = b",".join(itertools.islice((json.dumps(order(rng)).encode() for _ in itertools.count()), 5_000))
    yield "orders", b"[" + orders[: size - 2] + b"]"
    yield "base64", json.dumps({"blob": base64.b64encode(rng.randbytes(750_000)).decode()}).encode()
    yield "numbers", json.dumps([rng.randrange(10**12) for _ in range(70_000)]).encode()
    yield "orders in a URL", urllib.parse.quote(orders).encode()[:size]
    yield "percent", ("a=%20%41&" * (size // 9)).encode()
    yield "entities", ("x&nbsp;&#65;" * (size // 12)).encode()
    yield "twice in a URL", urllib.parse.quote(urllib.parse.quote(orders)).encode()[:size]
    yield "groups of digits", ("1234 5678 9012 " * (size // 15)).encode()
    yield "escapes", json.dumps({"text": "Größe 名前 " * (size // 45)}).encode()
    yield "Cyrillic", ("заказ\u00a0оплачен\u00a012\u00a0345 " * (size // 36)).encode()
    yield "Arabic", ("\u0637\u0644\u0628 \u0661\u0662\u0663\u0664\u0665 " * (size // 18)).encode()
    yield "digits of Arabic", ("\u0661\u0662\u0663\u0664 " * (size // 9)).encode()
    yield "Devanagari", ("\u0926\u093e\u092e \u0967\u0968\u0969 " * (size // 20)).encode()
    yield "random bytes", rng.randbytes(size)
    hexadecimal = rng.randbytes(size // 2).hex()
    yield "hexadecimal", f"{hexadecimal}%34".encode()
    yield "hexadecimal with escapes", "%34".join(hexadecimal[at : at + 1000] for at in range(0, size, 1000)).encode()
    yield "letters as entities", ("&#x4e2d;&#1079;&#246; " * (size // 22)).encode()
    yield "letters in JSON and an escape", ("Gr\\u00f6\\u00dfe \\u4e2d " * (size // 24) + "%341").encode()
    yield "one escape", ("the order was paid " * (size // 19) + "%341").encode()
    yield from _large_values_of_numbers(rng, size)


def _large_values_of_numbers(rng: random.Random, size: int) -> Iterator[tuple[str, bytes]]:
    yield "numbers of 13 digits", ",".join(digits(rng, 13) for _ in range(size // 14)).encode()
    yield "numbers of 16 digits", b",".join(_wrong(rng) for _ in range(size // 17))
    yield "floating-point numbers", json.dumps([rng.random() for _ in range(size // 21)]).encode()
    yield (
        "scientific notation",
        b",".join(b"%b.%bE15" % (n[:1], n[1:]) for n in (_wrong(rng) for _ in range(size // 21))),
    )
    yield "digits behind their length", b"".join(b"\x10" + _wrong(rng) for _ in range(size // 17))
    yield (
        "%34 after each 20 hexadecimal digits",
        "%34".join(rng.randbytes(10).hex() for _ in range(size // 23)).encode(),
    )
    for way in ("&#163{0};", "&#x3{0};", "\\u003{0}"):
        escaped = (way.format(rng.randrange(2, 10)) for _ in range(size // len(way.format(4))))
        yield f"{way.format(4)} for each digit", "".join(escaped).encode()


def _wrong(rng: random.Random) -> bytes:
    """16 digits in the range of Visa with a wrong check digit."""
    right = with_check(rng, "4", 16)
    return f"{right[:-1]}{(int(right[-1]) + 1) % 10}".encode()


def milliseconds(value: bytes) -> float:
    """The best of three scans, by the processor's time."""
    policy, taken = CardNumbers(), []
    for _ in range(3):
        begun = time.process_time()
        policy.scan(None, value)
        taken.append((time.process_time() - begun) * 1000)
    return round(min(taken), 2)


def _print(usual: Tally, ways: dict[str, Tally], count: int) -> None:
    print(f"\nCARDS: {count:,} made-up records, with and without card numbers")
    for kind in KINDS:
        rate = usual.rate((kind.name,))
        what = "found" if kind.holds_card else "false alarms"
        size = usual.bytes_seen[kind.name] / max(1, usual.seen[kind.name])
        cost = usual.ns_per_record((kind.name,))
        print(
            f"  {kind.name:32} {usual.seen[kind.name]:>8,}  {rate:9.4%} {what:12}  {cost:>8,.0f} ns  {size:4.0f} bytes"
        )
    for name, tally in ways.items():
        print(
            f"  {name:32} recall {tally.recall:.4%}  without a sign {tally.rate((MISSED_BY_DESIGN,)):.1%}"
            f"  false alarms {tally.false_alarms:.4%}  in random digits {tally.rate(RANDOM):.3%}"
            f"  {tally.ns_per_record():,.0f} ns/record"
        )


def _print_json(usual: Tally) -> None:
    for kind in KINDS:
        row = {"workload": "cards", "class": kind.name, "holds_card": kind.holds_card, "records": usual.seen[kind.name]}
        print(json.dumps(row | {"reported": usual.rate((kind.name,)), "ns": usual.ns_per_record((kind.name,))}))
    total = {"workload": "cards", "recall": usual.recall, "false_alarms": usual.false_alarms}
    print(json.dumps(total | {"ns": usual.ns_per_record(), "plain_order_ns": usual.ns_per_record(("plain order",))}))
