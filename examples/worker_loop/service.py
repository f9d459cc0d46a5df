"""Two workers in one process. Run it with `keepfast run examples.worker_loop.service:app`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from examples.database import Database, Lifespan
from examples.worker_loop.articles import Service, decode
from examples.worker_loop.worker import with_worker
from keepfast import App

TOPIC = "catalogue.article.v1"


database = Database(os.environ.get("DATABASE_URL", "postgresql://localhost/articles"))


@contextmanager
def lifespan(_: App) -> Iterator[None]:
    """The pool is open while the app runs."""
    with database:
        yield


def make_app(service: Service, lifespan: Lifespan | None = None) -> App:
    app = App("articles", lifespan=lifespan)
    with_worker(app, TOPIC, name="cache", decode=decode, do=service.cache)
    with_worker(app, TOPIC, name="index", decode=decode, do=service.index)
    return app


app = make_app(Service(database), lifespan)
