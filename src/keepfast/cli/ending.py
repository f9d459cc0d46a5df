"""The end of a process that ran user code: threads that this code has left behind do not hold it up."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Final, NoReturn

from keepfast.telemetry.logs import get_logger

LINGER_S: Final = 3.0
"""For what others do at the end of the process, such as exporters that send their last."""

log = get_logger("keepfast.lifecycle")


def end(code: int) -> NoReturn:
    """Exit with this code, in LINGER_S at the latest.

    Python waits for every thread that is no daemon. A handler that was cancelled may have left one that never ends:
    `asyncio.to_thread` and executors make such threads, and nobody can cancel what they call.
    """
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread.name != "MainThread"]
    if left:
        log.warning("threads_left_behind", threads=left[:10], ends_in_s=LINGER_S)
    threading.Thread(target=_end_anyway, args=(code,), name="keepfast-end", daemon=True).start()
    sys.exit(code)


def _end_anyway(code: int) -> None:
    time.sleep(LINGER_S)
    os._exit(code)
