"""`App` and `@app.consumer`: where a user's functions and everything around them are put together."""

from __future__ import annotations

from holdfast.app.application import App as App
from holdfast.app.application import Consumer as Consumer
from holdfast.app.options import ConsumerOptions as ConsumerOptions

__all__ = ["App", "Consumer", "ConsumerOptions"]
