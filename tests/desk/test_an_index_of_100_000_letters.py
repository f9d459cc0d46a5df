"""An index of 100,000 letters: built in seconds, within bounded memory, and then only what is new is read."""

from __future__ import annotations

import multiprocessing
import re
import time
from pathlib import Path

import pytest

from keepfast.desk import CaseFilter, CaseState, Desk, DeskOptions
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.letters import letter
from tests.support.members import connection

CAUSES = 4
MANY = 100_000


def measured(name: str, began: float) -> float:
    took_s = time.monotonic() - began
    print(f"{name}: {took_s:.3f} s")  # noqa: T201 - seen with -s
    return took_s


def build(bootstrap: str, options: DeskOptions) -> tuple[int, float, float]:
    """In a process of its own: letters, seconds, and its peak memory in MB."""
    desk = Desk(connection(bootstrap), options)
    began = time.monotonic()
    count = desk.refresh().letters
    took_s = time.monotonic() - began
    print(f"processor time of its process: {time.process_time():.1f} s")  # noqa: T201
    desk.close()
    # Not ru_maxrss, which counts the process that started this one.
    [peak_kib] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return count, took_s, int(peak_kib) / 1024


@pytest.mark.parametrize("count", [2_000, pytest.param(MANY, marks=[pytest.mark.long, pytest.mark.timing])])
def test_the_index_is_incremental_and_survives_its_deletion(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path, count: int
) -> None:
    dlq = topic(partitions=4, suffix=".dlq")
    file_letters(
        kafka,
        dlq,
        (
            letter(
                partition=n % 4,
                offset=n,
                key=b"k%d" % n,
                value=b'{"n":%d}' % n,
                fingerprint=f"{n % CAUSES:012x}",
                stack_trace='  File "/srv/app/charge.py", line 17, in charge\n' * 10,
            )
            for n in range(count)
        ),
    )
    options = DeskOptions(topics=(dlq,), by="test", desk_topic=f"{dlq}.desk", index_dir=tmp_path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        read, took_s, peak_mb = pool.apply(build, (kafka.bootstrap, options))
    assert read == count
    print(f"index of {count:,}: {took_s:.1f} s, peak memory of the process {peak_mb:.0f} MB")  # noqa: T201
    assert peak_mb < 200
    assert took_s < 10 or count < MANY
    desk = Desk(connection(kafka.bootstrap), options)
    began = time.monotonic()
    causes = desk.causes()
    measured("causes", began)
    assert [cause.count for cause in causes] == [count // CAUSES] * CAUSES
    began = time.monotonic()
    assert desk.refresh().letters == 0
    measured("refresh without news", began)
    file_letters(kafka, dlq, [letter(partition=1, offset=10**6, fingerprint="f" * 12)])
    began = time.monotonic()
    assert desk.refresh().letters == 1
    assert len(desk.causes()) == CAUSES + 1
    assert measured("refresh with one letter, and causes", began) < 0.2 or count < MANY
    desk.close()
    again = Desk(connection(kafka.bootstrap), options)
    assert again.refresh().letters == 0  # the file has it
    assert again.summary().counts == {CaseState.OPEN: count + 1}
    again.close()
    for file in tmp_path.iterdir():
        file.unlink()
    rebuilt = Desk(connection(kafka.bootstrap), options)
    assert rebuilt.refresh().letters == count + 1
    assert rebuilt.cases(CaseFilter(causes=frozenset(["ffff"]))).total == 1
    rebuilt.close()
