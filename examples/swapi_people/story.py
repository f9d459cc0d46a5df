"""The flow twice, from an API that limits, is down and is slow; poison in between; two consumers, each killed."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from examples.stage.account import Account
from examples.stage.http import Answer, HttpServer
from examples.stage.postgres import rows
from examples.stage.process import ROOT, run, until
from examples.stage.stage import Stage

TOPIC, LETTERS, GROUP = "swapi.people.v1", "swapi.people.dlq", "swapi.people.v1"
GROUPS = (GROUP, "swapi.people_batches.v1")
"""Of the runner, and of the app."""
INSTALLED = [ROOT, ROOT / "src", ROOT / "packages" / "neotool-common" / "src"]
"""What `pip install` makes importable."""
PEOPLE, FEW, PAGE = 240, 110, 10
ODD = {13: ("height", "-4"), 57: ("mass", "heavy"), 101: ("name", "")}
"""Who cannot be stored, and why: the database refuses one, the handler one, and one is no person."""
POISON = {"cut short": b'{"name": "Lu', "a list": b"[1, 2]", "no url": b'{"name": "No url"}'}
EDITED = "2014-12-20T21:17:56.891000Z"
SCHEMA = Path(__file__).with_name("schema.sql")


def person(number: int) -> dict[str, str]:
    fields = {"url": f"https://swapi.dev/api/people/{number}/", "name": f"Person {number}", "height": "172"}
    fields["edited"] = EDITED
    fields |= {"mass": "1,358" if number % 7 == 0 else "unknown" if number % 5 == 0 else "77", "birth_year": "19BBY"}
    return fields | dict([ODD[number]] if number in ODD else [])


class Swapi(HttpServer):
    """Pages of people; some of them only at the second request."""

    def __init__(self, people: int) -> None:
        super().__init__(self._answer)
        self._people = people
        self._asked: Counter[int] = Counter()
        self._lock = threading.Lock()

    def _answer(self, path: str, _: bytes) -> Answer:
        page = int(path.rpartition("=")[2])
        with self._lock:
            self._asked[page] += 1
            first = self._asked[page] == 1
        match page if first else 0:
            case 2:
                return Answer(429)
            case 5:
                return Answer(503)
            case 8:
                return Answer(wait_s=1.5)
            case _:
                return Answer(body=json.dumps(self._page(page)).encode())

    def _page(self, page: int) -> dict[str, Any]:
        numbers = range((page - 1) * PAGE + 1, page * PAGE + 1)
        more = f"{self.url}/people/?page={page + 1}" if page * PAGE < self._people else None
        return {"count": self._people, "next": more, "results": [person(number) for number in numbers]}


def story(stage: Stage, *, short: bool = False) -> Account:
    """Short: the flow runs once, and only the runner consumes."""
    account = Account("swapi_people")
    people = FEW if short else PEOPLE
    stage.topics(TOPIC)
    with Swapi(people) as api:
        flow = {"KAFKA_BROKERS": stage.broker.bootstrap, "SWAPI_URL": api.url, "SWAPI_TIMEOUT_S": "0.8"}
        flow["RETRY_INITIAL_DELAY_MS"] = "50"
        for _ in range(1 if short else 2):  # the second time everybody is there already
            output = run(["examples.swapi_people.flow"], flow)
            account.check(f"the flow printed {output!r}", right=output == f"sent {people}, acknowledged {people}\n")
            stage.send(TOPIC, POISON.items())
    for group in GROUPS[:1] if short else GROUPS:
        for number in range(1, people + 1):
            account.expect(f"{group}: {number}", "dead-lettered" if number in ODD else "stored")
        for name in POISON:
            account.expect(f"{group}: {name}", "dead-lettered")
        database = stage.postgres.create(group.split(".")[1], SCHEMA.read_text())
        consume(stage, account, group, database)
        reconcile(stage, account, group, database)
    return account


def consume(stage: Stage, account: Account, group: str, database: str) -> None:
    """All that is in the topic, with a kill -9, and at the end what is older than what is stored."""
    service = (
        stage.process(
            ["examples.swapi_people.consumer"],
            "swapi_people",
            DATABASE_URL=database,
            KEEPFAST_CONSUMER_GROUP_INSTANCE_ID="people-0",
            PYTHONPATH=os.pathsep.join(map(str, INSTALLED)),
        )
        if group == GROUP
        else stage.app("examples.swapi_people.service:app", DATABASE_URL=database)
    )
    service.start()
    count = "SELECT count(*) FROM people"
    until(lambda: service.check() and rows(database, count)[0][0] > 0, "a person is stored")
    service.kill()
    service.start()
    old = person(1) | {"name": "Former name", "edited": "2014-01-01T00:00:00.000000Z"}
    stage.send(TOPIC, [("1", json.dumps(old).encode())])
    stage.until_read(service, (group, TOPIC))
    account.check(f"{group} did not end cleanly", right=service.stop() == 0)


def reconcile(stage: Stage, account: Account, group: str, database: str) -> None:
    names = {value: name for name, value in POISON.items()}
    names |= {json.dumps(person(number)).encode(): str(number) for number in ODD}
    for letter in stage.letters(LETTERS):
        if letter.group == group:
            account.note("dead-lettered", [f"{group}: {names.get(letter.value or b'', f'letter {letter.offset}')}"])
    for number, name, mass in rows(database, "SELECT id, name, mass_kg FROM people"):
        account.note("stored", [f"{group}: {number}"])
        fields = person(number)
        known = None if fields["mass"] == "unknown" else fields["mass"].replace(",", "")
        right = (name, None if mass is None else str(mass)) == (fields["name"], known)
        account.check(f"{group}: person {number} is not as the API tells", right=right)
