"""Breaks of `KafkaConsumerRunner`."""

from __future__ import annotations

import inspect
from typing import Any

from profile_tests.breaking import breaks, replace, wrap

from keepfast import runner
from keepfast.runner import assembly, checking, hooks, retry
from keepfast.runner.publishing import HookPublisher
from keepfast.runner.runner import KafkaConsumerRunner
from keepfast.wiring.consumers import ConsumerSpec


@breaks("RUNNER")
def the_users_minimum_delay_is_not_asked_for() -> None:
    def spec(**facts: Any) -> ConsumerSpec:
        return ConsumerSpec(**{**facts, "spacing": None})

    vars(assembly)["ConsumerSpec"] = spec


@breaks("RUNNER")
def the_publisher_is_told_of_a_retry_more() -> None:
    def letter(self: HookPublisher, case: Any, *facts: Any) -> Any:
        case.failures += 1
        try:
            return before(self, case, *facts)
        finally:
            case.failures -= 1

    before = replace(HookPublisher, "letter", letter)


@breaks("HOOKS")
def hooks_may_be_anything() -> None:
    vars(checking)["callable"] = lambda hook: True


@breaks("HOOKS")
def hooks_may_be_coroutines() -> None:
    class Inspect:
        """As the module, but for one function."""

        def __getattr__(self, name: str) -> Any:
            return (lambda hook: False) if name == "iscoroutinefunction" else getattr(inspect, name)

    vars(checking)["inspect"] = Inspect()


@breaks("ANSWERS")
def success_is_failure() -> None:
    def judge(result: Any) -> None:
        if isinstance(result, dict) and isinstance(result.get("success"), bool):
            result = {**result, "success": not result["success"]}
        before(result)

    before = replace(hooks, "_judge", judge)


@breaks("BACKOFF")
def the_first_delay_is_left_out() -> None:
    wrap(retry, "calculate_backoff", lambda before: lambda count, config: before(count + 1, config))


@breaks("BACKOFF")
def there_is_no_jitter() -> None:
    def calculate_backoff(retry_count: int, config: object) -> int:
        return int(retry.policy_of(config).delay_ms(retry_count, 0.0))

    replace(retry, "calculate_backoff", calculate_backoff)


@breaks("ENDS_IN_ORDER")
def the_first_begun_ends_first() -> None:
    def finish(self: KafkaConsumerRunner) -> None:
        self._at_end.reverse()
        before(self)

    before = replace(KafkaConsumerRunner, "_finish", finish)


@breaks("SHIM")
def the_runner_has_no_back_off() -> None:
    runner.__all__.append("wait")
    vars(runner)["wait"] = None
