"""Two workers in one process. Run it with `keepfast run examples.worker_loop.service:app`."""

from __future__ import annotations

import os

from examples.database import Database
from examples.worker_loop.articles import Service, decode
from examples.worker_loop.worker import with_worker
from keepfast import App

TOPIC = "catalogue.article.v1"


def make_app(service: Service) -> App:
    app = App("articles")
    with_worker(app, TOPIC, name="cache", decode=decode, do=service.cache)
    with_worker(app, TOPIC, name="index", decode=decode, do=service.index)
    return app


app = make_app(Service(Database(os.environ.get("DATABASE_URL", "postgresql://localhost/articles"))))
