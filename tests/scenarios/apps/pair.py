"""Two consumers of one app, each with a topic and a group of its own. They do what `journalled.py` does."""

from __future__ import annotations

from keepfast import App, Context
from tests.scenarios.apps.journalled import handle_as

app = App("pair")


@app.consumer()
def left(value: bytes | None, ctx: Context) -> None:
    handle_as("left", value, ctx)


@app.consumer()
def right(value: bytes | None, ctx: Context) -> None:
    handle_as("right", value, ctx)
