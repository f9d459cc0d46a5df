"""`App` and `@app.consumer`: where a user's functions and everything around them are put together."""

from __future__ import annotations

from keepfast.app.application import App as App
from keepfast.app.options import Consumer as Consumer
from keepfast.app.options import ConsumerOptions as ConsumerOptions
from keepfast.app.router import Router as Router

__all__ = ["App", "Consumer", "ConsumerOptions", "Router"]
