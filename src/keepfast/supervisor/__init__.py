"""One parent, several child processes: starts them, restarts what died, passes signals on.

The parent loads neither the user's code nor the Kafka client, so nothing of theirs can take it down.
"""

from keepfast.supervisor.policy import RestartPolicy, ShutdownPolicy
from keepfast.supervisor.process import ChildPlace, ChildProcess
from keepfast.supervisor.signals import Signals
from keepfast.supervisor.supervise import Supervisor, with_static_members
from keepfast.supervisor.tether import Report, Tether

__all__ = [
    "ChildPlace",
    "ChildProcess",
    "Report",
    "RestartPolicy",
    "ShutdownPolicy",
    "Signals",
    "Supervisor",
    "Tether",
    "with_static_members",
]
