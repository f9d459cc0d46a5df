"""The real clock."""

from __future__ import annotations

import time


class RealClock:
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
