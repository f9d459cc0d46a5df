"""One parent process for several children: starts them, restarts those that died or do not live, forwards signals.

The parent imports neither user code nor the Kafka client, so that neither can crash it.
"""

from keepfast.supervisor.liveness import ChildWatch, LivenessPolicy
from keepfast.supervisor.numbers import SupervisorNumber
from keepfast.supervisor.parent_link import ParentLink, Report
from keepfast.supervisor.policy import RestartPolicy, ShutdownPolicy
from keepfast.supervisor.process import ChildProcess, ChildSpec
from keepfast.supervisor.signals import Signals
from keepfast.supervisor.supervisor import Supervisor, with_static_members

__all__ = [
    "ChildProcess",
    "ChildSpec",
    "ChildWatch",
    "LivenessPolicy",
    "ParentLink",
    "Report",
    "RestartPolicy",
    "ShutdownPolicy",
    "Signals",
    "Supervisor",
    "SupervisorNumber",
    "with_static_members",
]
