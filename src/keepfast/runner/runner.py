"""`KafkaConsumerRunner`: the hooks of the consumer pattern, in front of the engine."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from keepfast.core.policies import DeadLetterPolicy
from keepfast.http.local_app import LocalApp
from keepfast.runner.assembly import Blueprint, assemble_runner, settings_of
from keepfast.runner.checking import LoggerAdapter, refuse
from keepfast.runner.retry import policy_of
from keepfast.settings import Settings
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.prometheus import page
from keepfast.wiring.assembly import Assembly

log = get_logger("keepfast.runner")

M = TypeVar("M")

END_TIMEOUT_S = 1.0
"""For the hooks of the end when the deadline has passed: then the process ends, whatever they do."""


class HooksAround(NamedTuple):
    """What the user wants called before the first record and after the last."""

    health_server_start: Callable[[], Any] | None
    health_server_stop: Callable[[], Any] | None
    running_flag_setter: Callable[[bool], Any] | None
    cleanup_callback: Callable[[], Any] | None


class KafkaConsumerRunner:
    """Consumes until SIGTERM or SIGINT, with retries, dead letters and confirmed commits around `process_message`.

    consumer_factory          → a dict of confluent-kafka's configuration (best), or a consumer of confluent-kafka or
                              kafka-python that does not commit by itself
    producer_factory          → the same for a producer; needed for letters of ours through a client of yours
    retry_config              an object with the attributes of `RetryConfig`, or a RetryPolicy
    message_factory           the JSON object of a record → your message; without it, that object is the message
    process_message           your message → None, True, {"success": …, "error": …}; or it raises
    dlq_publisher             (message, error, retry_count=n) → False or an exception: not published, and called again;
                              a future is awaited. Without it, letters of ours go to `<domain>.<entity>.dlq`
    rate_limit_min_delay_ms   → the least time between two calls of process_message; no retry waits less
    health_server_start       called once before the first record; health_server_stop when all is over. Without it,
                              keepfast serves health and metrics (HEALTH_CHECK_PORT, HEALTH_CHECK_ENABLED); with it,
                              only metrics (KEEPFAST_METRICS_PORT)
    running_flag_setter       called with True before the first record, with False after the last
    cleanup_callback          called at the very end, whatever happened before
    message_context           your message → a text about it for the log
    logger                    where lines about records go; the engine's other ones go to the loggers below `keepfast`

    Beyond the pattern: `topics` and `group`, if the factory does not define them (else KAFKA_INPUT_TOPIC and
    KAFKA_CONSUMER_GROUP do); `concurrency`, how many records may be processed at the same time (1: no two of your
    functions ever run at the same time); `dead_letter`; `settings`, other settings by section, as in keepfast.toml.

    Nothing happens until `run`. Raises ConfigError with everything that is wrong.
    """

    def __init__(
        self,
        *,
        consumer_factory: Callable[[], Any],
        process_message: Callable[[M], Any],
        producer_factory: Callable[[], Any] | None = None,
        retry_config: object | None = None,
        message_factory: Callable[[Any], M] | None = None,
        dlq_publisher: Callable[..., Any] | None = None,
        rate_limit_min_delay_ms: Callable[[], float] | None = None,
        health_server_start: Callable[[], Any] | None = None,
        health_server_stop: Callable[[], Any] | None = None,
        running_flag_setter: Callable[[bool], Any] | None = None,
        cleanup_callback: Callable[[], Any] | None = None,
        message_context: Callable[[M], object] | None = None,
        logger: logging.Logger | LoggerAdapter | None = None,
        topics: str | Sequence[str] | None = None,
        group: str | None = None,
        name: str = "runner",
        concurrency: int = 1,
        dead_letter: DeadLetterPolicy | str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        may = {
            "producer_factory": producer_factory,
            "message_factory": message_factory,
            "dlq_publisher": dlq_publisher,
            "rate_limit_min_delay_ms": rate_limit_min_delay_ms,
            "message_context": message_context,
            "health_server_start": health_server_start,
            "health_server_stop": health_server_stop,
            "running_flag_setter": running_flag_setter,
            "cleanup_callback": cleanup_callback,
        }
        refuse({"consumer_factory": consumer_factory, "process_message": process_message}, may, logger)
        self.hooks = frozenset(name for name, hook in may.items() if hook is not None)
        """Which of the optional ones there are, by name."""
        self.blueprint = Blueprint(
            consumer_factory=consumer_factory,
            producer_factory=producer_factory,
            process_message=process_message,
            message_factory=message_factory,
            message_context=message_context,
            rate_limit_min_delay_ms=rate_limit_min_delay_ms,
            logger=logger,
            dlq_publisher=dlq_publisher,
            name=name,
            topics=[topics] if isinstance(topics, str) else topics,
            group=group,
            concurrency=concurrency,
            retry=None if retry_config is None else policy_of(retry_config),
            dead_letter=dead_letter,
            settings=settings or {},
            serves=health_server_start is None,
        )
        self._around = HooksAround(health_server_start, health_server_stop, running_flag_setter, cleanup_callback)
        self._lock = threading.Lock()  # guards the fields below
        self._at_end: list[tuple[str, Callable[[], Any]]] = []
        self._running: tuple[Assembly, LocalApp] | None = None
        self._stopped = False

    def run(self) -> int:
        """Until the end. Returns 0 after a clean one; any other raises SystemExit with its exit code, because the
        pattern's callers do not look at what `run` returns.

        In this order: consumer_factory, producer_factory, health_server_start, running_flag_setter(True), the records,
        and at the end the consumer is closed, then the producer, running_flag_setter(False), health_server_stop,
        cleanup_callback. What was not begun is not ended, but for cleanup_callback, which is called always. Raises
        ConfigError or StartError before anything has started.
        """
        if self._around.cleanup_callback is not None:
            self._at_end.append(("cleanup_callback", self._around.cleanup_callback))
        try:
            with ExitStack() as server:
                assembly, running = assemble_runner(self.blueprint, self._leave, server)
                try:
                    self._begin()
                except BaseException:
                    assembly.close(END_TIMEOUT_S)  # no loop has started, so none ends it
                    raise
                with self._lock:
                    self._running = assembly, running
                    if self._stopped:
                        assembly.stop()
                code = assembly.run()
        finally:
            self._finish()
        if code:
            raise SystemExit(code)
        return code

    def settings(self, *, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> Settings:
        """The settings that hold for this runner here and now. Calls consumer_factory; a consumer that it returns is
        closed again. Raises ConfigError with every problem.
        """
        variables = os.environ if environ is None else environ
        settings, _ = settings_of(self.blueprint, environ=variables, cwd=cwd or Path.cwd())
        return settings

    def metrics(self) -> str:
        """All metrics in Prometheus' text format, with those that you have registered with prometheus-client, for
        a health server of your own: answer `/metrics` with it. Empty until `run` has assembled everything. Any
        thread.
        """
        with self._lock:
            running = self._running
        return "" if running is None else page(running[1])[0].decode()

    def stop(self) -> None:
        """Ask for the end, as SIGTERM does, from any thread."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                self._running[0].stop()

    def _begin(self) -> None:
        start, stop, setter, _ = self._around
        if stop is not None:
            self._at_end.append(("health_server_stop", stop))
        if start is not None:
            start()
        if setter is not None:
            self._at_end.append(("running_flag_setter", lambda: setter(False)))
            setter(True)

    def _finish(self) -> None:
        """Each hook of the end once, the last begun first; one that fails does not keep the others from it."""
        while True:
            with self._lock:
                if not self._at_end:
                    return
                name, hook = self._at_end.pop()
            try:
                hook()
            except Exception as error:  # noqa: BLE001 - at the end it can only be logged
                log.error("hook_failed", hook=name, exc=error)  # noqa: TRY400 - our logger shows where it came from

    def _leave(self, code: int) -> None:
        """The deadline has passed, or a second signal came: the process ends now."""
        if code < 128:
            last = threading.Thread(target=self._finish, daemon=True)
            last.start()
            last.join(END_TIMEOUT_S)
        os._exit(code)
