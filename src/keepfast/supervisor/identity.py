"""Static membership for supervised children: a child that is started again gets its partitions back at once."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType

from keepfast.settings import Settings

_LONGEST = 249
"""What Kafka takes."""
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9._-]")


def with_static_members(settings: Settings, *, index: int, host: str) -> Settings:
    """The settings with a `group_instance_id` for each consumer that is the same after every restart of this child.

    It is `<app>-<host>-<index>`; one that was configured is kept and gets the index, because two members of a group
    must not share it.
    """
    default = f"{settings.app.name}-{host}"
    consumers = {
        name: replace(
            own,
            group_instance_id=instance_id(own.group_instance_id or default, index),
            named_by_supervisor=own.group_instance_id is None,
            group_protocol="classic" if own.group_protocol == "auto" else own.group_protocol,
        )
        for name, own in settings.consumers.items()
    }
    return replace(settings, consumers=MappingProxyType(consumers))


def instance_id(stem: str, index: int) -> str:
    """`<stem>-<index>` in the characters and the length that Kafka takes."""
    tail = f"-{index}"
    return _NOT_IN_AN_ID.sub("_", stem)[: _LONGEST - len(tail)] + tail
