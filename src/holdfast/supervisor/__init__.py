"""One parent, several child processes: starts them, restarts what died, passes signals on.

The parent loads neither the user's code nor the Kafka client, so nothing of theirs can take it down.
"""

from holdfast.supervisor.identity import with_static_members
from holdfast.supervisor.policy import RestartPolicy, ShutdownPolicy
from holdfast.supervisor.process import ChildProcess, Place
from holdfast.supervisor.signals import Signals
from holdfast.supervisor.supervise import Supervisor
from holdfast.supervisor.tether import Report, Tether

__all__ = [
    "ChildProcess",
    "Place",
    "Report",
    "RestartPolicy",
    "ShutdownPolicy",
    "Signals",
    "Supervisor",
    "Tether",
    "with_static_members",
]
