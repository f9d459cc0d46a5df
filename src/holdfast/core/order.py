"""Which lanes belong to which order."""

from __future__ import annotations

from holdfast.core.key_lanes import KeyLanes
from holdfast.core.lanes import Lanes
from holdfast.core.partition_lanes import PartitionLanes
from holdfast.core.policies import Order


def lanes_for(order: Order) -> Lanes:
    return PartitionLanes() if order == "partition" else KeyLanes(keyed=order == "key")
