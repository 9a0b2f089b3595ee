"""The reference: Kafka's own Java Connect worker, for conformance tests and benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.http import is_answering, send_request
from compose.local.process.jvm import Heap, java_command, write_log4j, write_log4j_1, write_properties
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import Say, drop_line

DEFAULT_PORT = 8083
DEBEZIUM = "debezium"  # the set with Debezium's MariaDB connector
_DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
_STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"


def worker_properties(
    bootstrap: str, group: str, port: int, replication: int, extra: Mapping[str, str]
) -> dict[str, str]:
    """Properties of a distributed worker with internal topics named after its group. Pure.

    Args:
        bootstrap: Kafka's addresses.
        group: `group.id`; workers of one group form a cluster.
        port: REST port.
        replication: Replication factor of the three internal topics.
        extra: Properties that override or add to those made here.
    """
    topics = {
        f"{kind}.storage.{name}": value
        for kind, topic in (("config", "configs"), ("offset", "offsets"), ("status", "status"))
        for name, value in (("topic", f"{group}-{topic}"), ("replication.factor", str(replication)))
    }
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "listeners": f"http://{LOOPBACK}:{port}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "plugin.discovery": "hybrid_warn",
        **topics,
        **extra,
    }


@dataclass(slots=True)
class JavaConnect(Managed):
    """One Java Connect worker. Start several with the same `group` (and folders of their own) for a cluster.

    On its class path, next to the runtime: connect-file, connect-transforms, connect-json, connect-mirror, and
    connect-test-plugins (VerifiableSource, VerifiableSink, MockSource, MockSink, SchemaSource).

    Attributes:
        state_dir: Folder of its configuration and log.
        bootstrap: Kafka's addresses.
        group: `group.id`, and the prefix of the names of its internal topics.
        port: REST port when it is free; None for any port.
        properties: Worker properties that override the defaults.
        replication: Replication factor of the internal topics.
        standalone: Property files' content for ConnectStandalone, one mapping per connector; None runs a distributed worker.
        runtime: Name of the pinned set that has the runtime: `connect`, or an older one (`connect-3`).
        plugins: Names of pinned sets (`artifacts.toml`) to add to the class path, for instance `DEBEZIUM`.
        extra_classpath: Further jars.
        heap: Heap of the worker.
        jvm_options: Further options of the JVM, see `jvm.FAST_START`.
        log_level: Level of the root logger.
        detached: Whether the worker outlives this program.
        start_timeout: Seconds the worker may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    bootstrap: str
    group: str = "java-connect"
    port: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    replication: int = 1
    standalone: Sequence[Mapping[str, str]] | None = None
    runtime: str = "connect"
    plugins: Sequence[str] = ()
    extra_classpath: Sequence[Path] = ()
    heap: Heap = field(default_factory=Heap)
    jvm_options: Sequence[str] = ()
    log_level: str = "INFO"
    detached: bool = False
    start_timeout: float = 90.0
    say: Say = drop_line

    @property
    def url(self) -> str:
        """Root of its REST API, without a slash at the end; known before the start."""
        _ = self.service
        return f"http://{LOOPBACK}:{self.port}"

    def request(self, method: str, path: str, body: object = None, timeout: float = 30.0) -> tuple[int, Any]:
        """Call its REST API and return the status with the decoded body (None when empty). Blocks.

        An error status is an answer, not an exception.

        Args:
            method: For instance `GET`.
            path: Path with query, for instance `/connectors?expand=status`.
            body: What to send as JSON; None for no body.
            timeout: Seconds to wait for the answer.

        Raises:
            OSError: There was no answer.
        """
        return send_request(method, self.url + path, body, timeout)

    def _prepare(self) -> Service:
        java = find_java(say=self.say)
        manifest = load_manifest()
        jars = ArtifactResolver(say=self.say).fetch(
            # A jar of two sets is wanted once.
            dict.fromkeys(artifact for name in (self.runtime, *self.plugins) for artifact in manifest.members(name)),
            "Kafka Connect (the Java reference)",
        )
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        properties = worker_properties(self.bootstrap, self.group, self.port, self.replication, self.properties)
        if self.standalone is None:
            main, arguments = _DISTRIBUTED, [write_properties(folder / "worker.properties", properties)]
        else:
            properties.setdefault("offset.storage.file.filename", str(folder / "offsets"))
            main, arguments = _STANDALONE, [write_properties(folder / "worker.properties", properties)]
            for index, connector in enumerate(self.standalone):
                arguments.append(write_properties(folder / f"connector-{index}.properties", dict(connector)))
        options = [*self.jvm_options, f"-Dlog4j2.configurationFile={write_log4j(folder, self.log_level)}"]
        if self.runtime != "connect":
            options.append(f"-Dlog4j.configuration=file:{write_log4j_1(folder, self.log_level)}")
        return Service(
            name=f"Java Connect worker ({LOOPBACK}:{self.port})",
            command=java_command(
                java, [*jars, *self.extra_classpath], main, [str(a) for a in arguments], self.heap, options
            ),
            log_path=folder / "connect.log",
            ready=self._is_answering,
            detached=self.detached,
            start_timeout=self.start_timeout,
        )

    # `GET /` alone is true too early: REST opens before the worker has read the internal topics. Older ones have no `/health`.
    def _is_answering(self) -> bool:
        path = "/health" if self.runtime == "connect" else "/connectors"
        return is_answering(f"{self.url}/") and is_answering(f"{self.url}{path}")
