"""A ScaledObject with a trigger for Kafka, as KEDA documents it (2.15 to 2.22), for `msgspec.convert`: a field that it
does not know, a number as text or a text as number is an error. KEDA itself ignores what it does not know.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Whole = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Text = Annotated[str, Meta(min_length=1)]
Number = Annotated[str, Meta(pattern=r"^\d+$")]
Flag = Literal["true", "false"]


class Shape(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Target(Shape, frozen=True):
    name: Text
    api_version: str = "apps/v1"
    kind: str = "Deployment"
    env_source_container_name: str = ""


class Policy(Shape, frozen=True):
    type: Literal["Pods", "Percent"]
    value: Positive
    period_seconds: Annotated[int, Meta(ge=1, le=1800)]


class Direction(Shape, frozen=True):
    stabilization_window_seconds: Annotated[int, Meta(ge=0, le=3600)] = 0
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"
    policies: Annotated[list[Policy], Meta(min_length=1)] | None = None


class Behavior(Shape, frozen=True):
    scale_up: Direction | None = None
    scale_down: Direction | None = None


class Autoscaler(Shape, frozen=True):
    name: str = ""
    behavior: Behavior | None = None


class Advanced(Shape, frozen=True):
    restore_to_original_replica_count: bool = False
    horizontal_pod_autoscaler_config: Autoscaler | None = None


class Fallback(Shape, frozen=True):
    failure_threshold: Whole
    replicas: Whole


class Kafka(Shape, frozen=True):
    """Everything is text here."""

    bootstrap_servers: Text
    consumer_group: Text
    topic: str = ""
    lag_threshold: Number = "10"
    activation_lag_threshold: Number = "0"
    offset_reset_policy: Literal["latest", "earliest"] = "latest"
    allow_idle_consumers: Flag = "false"
    scale_to_zero_on_invalid_offset: Flag = "false"
    exclude_persistent_lag: Flag = "false"
    limit_to_partitions_with_lag: Flag = "false"
    ensure_even_distribution_of_partitions: Flag = "false"
    partition_limitation: str = ""
    version: str = ""
    sasl: str = ""
    tls: Literal["enable", "disable"] = "disable"
    unsafe_ssl: Flag = "false"


class Trigger(Shape, frozen=True):
    type: Literal["kafka"]
    metadata: Kafka
    name: str = ""
    authentication_ref: dict[str, str] | None = None
    metric_type: Literal["AverageValue", "Value", "Utilization"] = "AverageValue"
    use_cached_metrics: bool = False


class Spec(Shape, frozen=True):
    scale_target_ref: Target
    triggers: Annotated[list[Trigger], Meta(min_length=1)]
    polling_interval: Positive = 30
    cooldown_period: Whole = 300
    initial_cooldown_period: Whole = 0
    idle_replica_count: Whole | None = None
    min_replica_count: Whole = 0
    max_replica_count: Positive = 100
    fallback: Fallback | None = None
    advanced: Advanced | None = None


class Metadata(Shape, frozen=True):
    name: Text
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ScaledObject(Shape, frozen=True):
    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledObject"]
    metadata: Metadata
    spec: Spec
