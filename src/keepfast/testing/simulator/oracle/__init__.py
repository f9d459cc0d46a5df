"""The oracle: watches a simulated world, record by record, and says which promise was broken, when and by what."""

from keepfast.testing.simulator.oracle.oracle import Oracle
from keepfast.testing.simulator.oracle.violation import Violation

__all__ = ["Oracle", "Violation"]
