"""Both workers, and the naive loop beside them, through a kill -9 and a database that goes away."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from examples.stage.account import Account
from examples.stage.postgres import rows
from examples.stage.process import until
from examples.stage.stage import Place, Stage
from examples.worker_loop.naive import GROUP as NAIVE
from examples.worker_loop.service import TOPIC

ARTICLES, FEW = 300, 27
"""The naive loop commits only what it could store: in each partition a good article must be the last one."""
GROUPS = {"articles.cache": "cache", "articles.index": "index"}
QUICK = {
    f"KEEPFAST_CONSUMERS_{worker}_RETRY_{which}_DELAY_MS": "300"
    for worker in ("CACHE", "INDEX")
    for which in ("INITIAL", "MAX")
}
SCHEMA = Path(__file__).with_name("schema.sql")


def article(number: int) -> bytes:
    return json.dumps({"id": f"a{number}", "title": f"No {number}", "version": 1}).encode()


def garbage(number: int) -> bytes:
    return b'{"id": "a%d", "tit' % number


def story(stage: Stage, *, short: bool = False) -> Account:
    """Short: without the kill, and tried again sooner than after 3 s."""
    account = Account("worker_loop")
    articles = FEW if short else ARTICLES
    database = stage.postgres.create("articles", SCHEMA.read_text())
    stage.topics(TOPIC)
    skipped: dict[Place, str] = {}

    def send(numbers: Iterable[int]) -> None:
        records = [(f"a{number}", garbage(number) if number % 25 == 3 else article(number)) for number in numbers]
        for (key, value), place in zip(records, stage.send(TOPIC, records), strict=True):
            good = value.endswith(b"}")
            for worker in GROUPS.values():
                account.expect(f"{key} by {worker}", "stored" if good else "skipped")
            if not good:
                skipped[place] = key

    service = stage.app("examples.worker_loop.service:app", DATABASE_URL=database, **(QUICK if short else {}))
    naive = stage.process(["examples.worker_loop.naive"], "naive", DATABASE_URL=database)

    def stored() -> int:
        return int(rows(database, "SELECT count(*) FROM article_cache")[0][0])

    send(range(articles))
    service.start()
    naive.start()
    until(lambda: service.check() and stored() > 20, "20 articles are stored")
    if not short:
        service.kill()
        service.start()
    stage.until_read(service, *((group, TOPIC) for group in (*GROUPS, NAIVE)))

    stage.postgres.stop()
    send(range(articles, articles + 40))
    until(
        lambda: service.check() and _tried_again(list(service.log_entries("retry_scheduled"))), "both workers try again"
    )
    stage.postgres.start()
    send(range(articles + 40, articles + 60))
    stage.until_read(service, *((group, TOPIC) for group in (*GROUPS, NAIVE)))
    account.check("the service did not end cleanly", right=service.stop() == 0)
    naive.stop()

    for entry in service.log_entries("record_discarded"):
        key = skipped.get((entry["topic"], entry["partition"], entry["offset"]), "unknown")
        account.note("skipped", [f"{key} by {GROUPS[entry['consumer_group']]}"])
    account.note("stored", (f"{key} by cache" for (key,) in rows(database, "SELECT id FROM article_cache")))
    account.note("stored", (f"{key} by index" for (key,) in rows(database, "SELECT DISTINCT id FROM article_words")))
    kept = {key for (key,) in rows(database, "SELECT id FROM naive_articles")}
    lost = [key for key in _stored_by_cache(account) if key not in kept]
    account.remarks.append(f"the naive loop beside it, in the same outage, has lost {len(lost)} articles forever")
    account.check("the naive loop has lost nothing: then there is nothing to show", right=bool(lost))
    return account


def _tried_again(entries: list[dict[str, object]]) -> bool:
    return {entry["consumer_group"] for entry in entries} == set(GROUPS)


def _stored_by_cache(account: Account) -> list[str]:
    return [
        key.removesuffix(" by cache")
        for key, ends in account.expected.items()
        if "by cache" in key and "stored" in ends
    ]
