"""Which lanes belong to which order."""

from __future__ import annotations

from keepfast.core.key_lanes import KeyLanes
from keepfast.core.lanes import Lanes
from keepfast.core.partition_lanes import PartitionLanes
from keepfast.core.policies import Order


def lanes_for(order: Order) -> Lanes:
    return PartitionLanes() if order == "partition" else KeyLanes(keyed=order == "key")
