"""Debezium's Cassandra connector as its own program, on the same segments: it needs no Kafka Connect.

It initialises Cassandra's own classes to read the log, so it runs with their class path, and polls a directory for complete
segments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from compose.local.cassandra import JAVA_MODULES
from compose.local.ports import accepts_connections, free_port
from compose.local.process.jvm import Heap, java_command, write_properties
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver

if TYPE_CHECKING:
    from pathlib import Path

    from compose.local.cassandra import CassandraNode

_MAIN: Final = "io.debezium.connector.cassandra.CassandraConnectorTask"
_LOGBACK: Final = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


@dataclass(slots=True)
class DebeziumCassandra(Managed):
    """The connector of one node, with JSON without schemas.

    Attributes:
        state_dir: Folder of its configuration, offsets and log.
        node: The node whose tables it asks for.
        directory: Its ``cdc_raw``, with the segments to read.
        bootstrap: Kafka's addresses.
        prefix: ``topic.prefix``.
        producer: Settings of its producer.
        more: Further properties of the connector.
        heap: Heap of the JVM.
    """

    state_dir: Path
    node: CassandraNode
    directory: Path
    bootstrap: str
    prefix: str
    producer: dict[str, str] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)
    heap: Heap = field(default_factory=lambda: Heap(512, 2048))

    def _prepare(self) -> Service:
        folder = self.state_dir.absolute()
        for subfolder in ("relocated", "offsets", "own"):
            (folder / subfolder).mkdir(parents=True, exist_ok=True)
        settings = json.loads((self.node.state_dir / "cassandra.yaml").read_text(encoding="utf-8"))
        for name in ("commitlog_directory", "saved_caches_directory", "hints_directory"):
            settings[name] = str(folder / "own" / name)
        settings |= {"data_file_directories": [str(folder / "own" / "data")], "cdc_raw_directory": str(self.directory)}
        (folder / "cassandra.yaml").write_text(json.dumps(settings), encoding="utf-8")
        host, port = self.node.host, self.node.port
        (folder / "application.conf").write_text(
            f'datastax-java-driver {{ basic {{ contact-points = ["{host}:{port}"], request.timeout = 30 seconds\n'
            "load-balancing-policy.local-datacenter = datacenter1 } }\n",
            encoding="utf-8",
        )
        (folder / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
        http = free_port()
        converter = "org.apache.kafka.connect.json.JsonConverter"
        properties = write_properties(
            folder / "debezium.properties",
            {
                "connector.name": self.prefix,
                "topic.prefix": self.prefix,
                "cassandra.cluster.name": "bench",
                "cassandra.node.id": "local",
                "cassandra.config": str(folder / "cassandra.yaml"),
                "cassandra.driver.config.file": str(folder / "application.conf"),
                "cassandra.hosts": host,
                "cassandra.port": str(port),
                "http.port": str(http),
                "snapshot.mode": "NEVER",
                "commit.log.relocation.dir": str(folder / "relocated"),
                "offset.backing.store.dir": str(folder / "offsets"),
                "offset.flush.interval.ms": "10000",
                "cdc.dir.poll.interval.ms": "200",
                "commit.log.relocation.dir.poll.interval.ms": "1000",
                "key.converter": converter,
                "value.converter": converter,
                "key.converter.schemas.enable": "false",
                "value.converter.schemas.enable": "false",
                "kafka.producer.bootstrap.servers": self.bootstrap,
                "kafka.producer.retries": "3",
                "kafka.producer.acks": "all",
                **{f"kafka.producer.{name}": value for name, value in self.producer.items()},
                **self.more,
            },
        )
        manifest = load_manifest()
        artifacts = [*manifest.members("debezium-cassandra"), *manifest.members("cassandra")]
        # Its HTTP server is a Jetty 9, which fails together with Connect's Jetty 12.
        artifacts += [
            artifact
            for artifact in manifest.members("connect")
            if not artifact.coordinates.startswith("org.eclipse.jetty")
        ]
        jars = ArtifactResolver().fetch(dict.fromkeys(artifacts), "Debezium's Cassandra connector")
        options = [
            *JAVA_MODULES,
            f"-Dlogback.configurationFile={folder / 'logback.xml'}",
            f"-Dcassandra.storagedir={folder / 'own'}",
            "-Djdk.attach.allowAttachSelf=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
        ]
        return Service(
            name="Debezium's Cassandra connector",
            command=java_command(find_java(), jars, _MAIN, [str(properties)], self.heap, options),
            log_path=folder / "debezium.log",
            ready=lambda: accepts_connections(http),
            start_timeout=90.0,
        )
