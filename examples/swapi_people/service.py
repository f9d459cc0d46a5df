"""People into the database, a hundred at a time, with `App` instead of the runner of consumer.py. Run it with
`keepfast run examples.swapi_people.service:app`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from examples.database import Database, Lifespan
from examples.swapi_people.people import Person, Row, Upsert, upsert_into
from keepfast import App, BatchError, BatchPolicy

TOPIC = "swapi.people.v1"
GROUP = "swapi.people_batches.v1"

database = Database(os.environ.get("DATABASE_URL", "postgresql://localhost/swapi"))


@contextmanager
def lifespan(_: App) -> Iterator[None]:
    """The pool is open while the app runs."""
    with database:
        yield


def make_app(upsert: Upsert, lifespan: Lifespan | None = None) -> App:
    app = App("swapi", lifespan=lifespan)

    @app.consumer(
        TOPIC,
        group=GROUP,
        batch=BatchPolicy(size=100, wait_s=0.2),
        atomic=True,  # one transaction: a row that the database refuses is found by bisection, only it is dead-lettered
        idempotent=True,
        timeout_s=20,
    )
    def load(people: list[Person]) -> None:
        rows: list[Row] = []
        bad: dict[int, BaseException] = {}
        for index, person in enumerate(people):
            try:
                rows.append(person.row)
            except ValueError as error:
                bad[index] = error
        if bad:
            raise BatchError(bad)  # those are dead-lettered; the others are delivered again
        upsert(rows)

    return app


app = make_app(upsert_into(database), lifespan)
