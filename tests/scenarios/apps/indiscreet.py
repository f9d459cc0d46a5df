"""A consumer that tells what it was given in everything it raises and logs.

Variables: SCENARIO_SENSITIVE (records with card numbers are discarded), SCENARIO_FORMAT (of letters).
"""

from __future__ import annotations

import logging
import os
from typing import Any

from pydantic import BaseModel

from keepfast import App, CardNumbers, Context, DeadLetterPolicy, Discard, Reject, RetryPolicy

app = App("scenario", masking={"fields": ["shoe_size"], "patterns": [r"ACME-\d+"]})


class Payment(BaseModel):
    """Its errors quote what they got."""

    amount: int


def blurt(text: str, ctx: Context) -> None:
    ctx.logger.warning("got %s", text)
    logging.getLogger("keepfast.handler.other").error("had %s", text, exc_info=ValueError(text))
    match ctx.offset % 6:
        case 0:
            raise ValueError(f"cannot use {text}")
        case 1:
            raise Reject(f"refused: {text}", code="REFUSED")
        case 2:
            try:
                raise KeyError(text)
            except KeyError as error:
                raise TimeoutError(f"late: {text}") from error
        case 3:
            Payment.model_validate_json('{"amount": "' + text.replace('"', "'") + '"}')
        case 4:
            raise ExceptionGroup(text, [RuntimeError(text), OSError(5, text, text)])
        case _:
            raise Discard(f"dropped {text}")


sensitive: Any = CardNumbers() if os.environ.get("SCENARIO_SENSITIVE") else None
form: Any = os.environ.get("SCENARIO_FORMAT", "envelope")


@app.consumer(
    name="handle",
    sensitive=sensitive,
    retry=RetryPolicy(max_retries=1, initial_delay_ms=1),
    dead_letter=DeadLetterPolicy(topic="{topic}.dlq", format=form),
)
def handle(value: bytes, ctx: Context) -> None:
    headers = " ".join(f"{name}: {(value or b'').decode()}" for name, value in ctx.headers)
    blurt(f"{(ctx.key or b'').decode()} {value.decode()} {headers}", ctx)
