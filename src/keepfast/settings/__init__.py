"""Settings: environment, `.env`, `keepfast.toml`, code, defaults → frozen values, read once and checked whole.

Nothing is read when this is imported; `load` is the entry, and `retries_of_app` for what a `RetryConfig` reads.
"""

from keepfast.settings.kinds import Secret
from keepfast.settings.loading import AppSpec, load, retries_of_app
from keepfast.settings.model import (
    AppSettings,
    ConsumerSettings,
    ControlSettings,
    DeskSettings,
    HealthSettings,
    KafkaSettings,
    LogSettings,
    MaskingSettings,
    MetricsSettings,
    RegistrySettings,
    Settings,
    ShutdownSettings,
    SpoolSettings,
    StateSettings,
    TopicNames,
    TracingSettings,
)

__all__ = [
    "AppSettings",
    "AppSpec",
    "ConsumerSettings",
    "ControlSettings",
    "DeskSettings",
    "HealthSettings",
    "KafkaSettings",
    "LogSettings",
    "MaskingSettings",
    "MetricsSettings",
    "RegistrySettings",
    "Secret",
    "Settings",
    "ShutdownSettings",
    "SpoolSettings",
    "StateSettings",
    "TopicNames",
    "TracingSettings",
    "load",
    "retries_of_app",
]
