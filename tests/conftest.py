"""What all tests share: how hypothesis searches. Fixtures live beside the tests that need them."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Deadlines per example measure how busy the machine is, not the code.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# In CI a failure must be the change's fault: the same examples every time.
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
