"""What the operating system says about this process: memory, processor, threads, files, network."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from keepfast.telemetry import catalogue
from keepfast.telemetry.families import Metric, MetricFamily, Sample

_PROC = Path("/proc/self")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def process_families() -> list[MetricFamily]:
    """What can be had here and now; what cannot is left out. Any thread; a few small reads of /proc."""
    readers: list[Callable[[], Iterator[tuple[Metric, float]]]] = [_processor, _stat, _files, _network]
    families: list[MetricFamily] = [MetricFamily.of(catalogue.THREADS_ALIVE, [Sample((), threading.active_count())])]
    for read in readers:
        try:
            families += [MetricFamily.of(metric, [Sample((), value)]) for metric, value in read()]
        except (OSError, ValueError, IndexError):
            continue
    return families


def _processor() -> Iterator[tuple[Metric, float]]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield catalogue.CPU, used.ru_utime + used.ru_stime


def _stat() -> Iterator[tuple[Metric, float]]:
    # The command's name is in brackets and may hold anything, so what follows its end is counted.
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    yield catalogue.OS_THREADS, int(fields[17])
    yield catalogue.VIRTUAL_MEMORY, int(fields[20])
    yield catalogue.MEMORY, int(fields[21]) * _PAGE_BYTES
    booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    yield catalogue.STARTED, int(booted.split()[1]) + int(fields[19]) / _TICKS


def _files() -> Iterator[tuple[Metric, float]]:
    yield catalogue.OPEN_FILES, len(list((_PROC / "fd").iterdir()))
    yield catalogue.MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _network() -> Iterator[tuple[Metric, float]]:
    """Of all interfaces that this process sees but the loopback: in a container, its own."""
    received = sent = 0
    for line in (_PROC / "net" / "dev").read_text().splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        if name.strip() != "lo":
            received, sent = received + int(numbers[0]), sent + int(numbers[8])
    yield catalogue.NETWORK_RECEIVED, received
    yield catalogue.NETWORK_SENT, sent
