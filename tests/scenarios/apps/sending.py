"""A consumer that sends one record for each it handles; the copy's value says which one it is of.

Variables: SCENARIO_OUTPUT (the topic).
"""

from __future__ import annotations

import os

from keepfast import App, Context

app = App("scenario")


@app.consumer(name="handle")
def handle(value: bytes, ctx: Context) -> None:
    ctx.send(os.environ["SCENARIO_OUTPUT"], {"partition": ctx.partition, "offset": ctx.offset}, key=ctx.key)
