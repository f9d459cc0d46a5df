"""The oracle: watches a simulated world, record by record, and says which promise was broken, when and by what."""

from simulation.oracle.oracle import Oracle
from simulation.oracle.violation import Violation

__all__ = ["Oracle", "Violation"]
