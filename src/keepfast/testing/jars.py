"""Apache Kafka's jars, fetched once through Maven into a cache outside any repository.

The cache folder is `$KEEPFAST_CACHE_DIR`, else `$XDG_CACHE_HOME/keepfast`, else `~/.cache/keepfast`. In it:

    kafka-4.3.1/jars/*.jar               the runtime dependencies of org.apache.kafka:kafka_2.13
    kafka-4.3.1/bootstrap.checkpoint     what Kafka's own format tool writes into an empty data folder (not before 3.3)
    kafka-4.3.1/classes-<java>.jsa       preloaded classes for one Java; halves the boot time

The folder is created atomically, and concurrent processes wait for each other.
"""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from keepfast.core.errors import StartError
from keepfast.testing.java import Java

KAFKA_VERSION = "4.3.1"
CLASSIC_KAFKA_VERSION = "3.9.1"
"""The last line of Kafka that has only the classic group protocol, for this client."""
FETCH_TIMEOUT_S = 600

# slf4j-simple: Kafka's own artifacts include no logger, and without one a broker fails silently.
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>keepfast</groupId>
  <artifactId>test-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""

# Only what the format tool requires; its checkpoint does not depend on it.
_FORMAT = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:1
listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1
controller.listener.names=CONTROLLER
log.dirs={data}
"""


@dataclass(frozen=True, slots=True)
class KafkaFiles:
    """The cache folder of one version of Kafka; created atomically, so it is complete if it exists."""

    folder: Path
    version: str = KAFKA_VERSION

    @property
    def is_complete(self) -> bool:
        return (self.folder / "jars").is_dir()

    @property
    def needs_zookeeper(self) -> bool:
        return needs_zookeeper(self.version)

    @property
    def checkpoint(self) -> Path:
        """There is none if Kafka keeps its metadata in ZooKeeper."""
        return self.folder / "bootstrap.checkpoint"

    @property
    def classpath(self) -> str:
        """Every jar by name, sorted: preloaded classes are only taken for exactly the same class path."""
        return os.pathsep.join(str(jar) for jar in sorted((self.folder / "jars").glob("*.jar")))

    @property
    def size_bytes(self) -> int:
        return sum(jar.stat().st_size for jar in (self.folder / "jars").glob("*.jar"))


def cache_dir() -> Path:
    """keepfast's cache folder."""
    own = os.environ.get("KEEPFAST_CACHE_DIR")
    if own:
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache").expanduser().absolute() / "keepfast"


def needs_zookeeper(version: str) -> bool:
    """Whether this version of Kafka is run with ZooKeeper: before 3.3, KRaft was a preview."""
    return tuple(int(number) for number in version.split(".")[:2]) < (3, 3)


def is_cached(version: str = KAFKA_VERSION) -> bool:
    """Whether the jars are cached."""
    return _files(version).is_complete


def kafka_files(java: Java, version: str = KAFKA_VERSION) -> KafkaFiles:
    """The cached files, fetched first if they are not there. Blocks; raises StartError."""
    files = _files(version)
    if files.is_complete:
        return files
    with cache_lock():
        if not files.is_complete:
            _fetch(files, java)
    return files


@contextmanager
def cache_lock() -> Iterator[None]:
    """Held by one process at a time; the operating system releases it when that process ends."""
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / "lock").open("a")
    except OSError as error:
        raise StartError(
            f"Cannot write to the cache {folder}: {error}. Set KEEPFAST_CACHE_DIR to a writable folder."
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def random_id() -> str:
    """An id as Kafka writes them: 16 bytes in URL-safe base64. The fixed first byte keeps it from starting with '-'."""
    return base64.urlsafe_b64encode(b"\x10" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def _files(version: str) -> KafkaFiles:
    return KafkaFiles(cache_dir() / f"kafka-{version}", version)


def _fetch(files: KafkaFiles, java: Java) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise StartError(
            f"Apache Kafka {files.version} is not in the cache {files.folder}, and Maven, which fetches it, is "
            "not installed: install Maven so that `mvn` is on the PATH (Debian: apt-get install maven; "
            "macOS: brew install maven)."
        )
    work = Path(tempfile.mkdtemp(prefix="fetch-", dir=files.folder.parent))
    try:
        (work / "pom.xml").write_text(_POM.format(version=files.version))
        whole = work / "whole"
        _run_maven(mvn, work, whole / "jars", java, files.version)
        if not files.needs_zookeeper:
            _format(whole, java)
        if files.folder.exists():
            shutil.rmtree(files.folder)
        whole.rename(files.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_maven(mvn: str, work: Path, jars: Path, java: Java, version: str) -> None:
    command = [
        mvn, "--batch-mode", "--quiet", "--no-transfer-progress", "--strict-checksums", "--file", str(work / "pom.xml"),
        "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}",
    ]  # fmt: skip
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartError(f"Maven could not fetch Apache Kafka {version}: {error}. Try: {' '.join(command)}") from error
    if done.returncode != 0 or not list(jars.glob("kafka_2.13-*.jar")):
        raise StartError(
            f"Maven could not fetch Apache Kafka {version} (is the network available, is a mirror needed in "
            f"settings.xml?). Its output:\n{_tail(done.stdout + done.stderr)}"
        )


def _format(whole: Path, java: Java) -> None:
    """Let Kafka's own tool write the bootstrap checkpoint once; brokers then start from a copy, a second sooner."""
    data = whole.parent / "data"
    properties = whole.parent / "format.properties"
    properties.write_text(_FORMAT.format(data=data))
    command = [
        str(java.program), "-cp", KafkaFiles(whole).classpath, "kafka.tools.StorageTool",
        "format", "--cluster-id", random_id(), "--config", str(properties),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise StartError(f"Kafka's format tool failed on {java.program}:\n{_tail(done.stdout + done.stderr)}")
    shutil.copyfile(data / "bootstrap.checkpoint", whole / "bootstrap.checkpoint")


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
