"""Apache Cassandra as a plain process: one node, or several on 127.0.0.1, 127.0.0.2 ... that form a cluster."""

import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from compose.local.ports import LOOPBACK, free_port, free_ports, taken_ports
from compose.local.process.jvm import Heap, java_command
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import Say, drop_line

DEFAULT_PORT = 9142  # 9042 is the Scylla emulation's
#: The set of files of the manifest by version.
VERSIONS: Final[Mapping[str, str]] = {"5.0": "cassandra", "4.1": "cassandra-41", "6.0": "cassandra-6"}
_MAIN = "org.apache.cassandra.service.CassandraDaemon"
_NODETOOL = "org.apache.cassandra.tools.NodeTool"
_NODETOOL_TIMEOUT = 180.0  # seconds; a node that leaves hands its data over
#: Settings that a version does not know yet.
_UNKNOWN: Final[Mapping[str, frozenset[str]]] = {"4.1": frozenset({"native_transport_timeout"})}
_OPTIONS_FRAME = bytes((4, 0, 0, 0, 5, 0, 0, 0, 0))  # protocol v4, stream 0, OPTIONS, no body
_SUPPORTED = 6
# Inside of the JDK that Cassandra reaches into, from its own conf/jvm17-server.options.
_EXPORTS = (
    "java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/java.lang.ref", "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
    "java.sql/java.sql", "jdk.unsupported/sun.misc", "jdk.compiler/com.sun.tools.javac.file",
)  # fmt: skip
_OPENS = (
    *(
        f"java.base/{package}"
        for package in (
            "java.lang", "java.lang.module", "java.lang.reflect", "java.io", "java.nio", "java.util", "java.util.concurrent",
            "java.util.concurrent.atomic", "java.net", "jdk.internal.loader", "jdk.internal.ref", "jdk.internal.reflect",
            "jdk.internal.math", "jdk.internal.module", "jdk.internal.util.jar", "sun.nio.ch",
        )
    ),
    "jdk.management/com.sun.management.internal",
)  # fmt: skip
#: Options without which Cassandra's classes do not work on Java 17.
JAVA_MODULES: Final = (
    *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS),
)
_LOGBACK = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date{ISO8601} %-5level [%thread] %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


def speaks_cql(port: int, host: str = LOOPBACK, timeout: float = 1.0) -> bool:
    """Whether something on the port answers a CQL OPTIONS request; blocks for about `timeout` seconds at most."""
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(_OPTIONS_FRAME)
            head = connection.recv(9)
            return len(head) >= 5 and head[0] == 0x84 and head[4] == _SUPPORTED
    except OSError:
        return False


def artifact_set(version: str) -> str:
    """The set of files of a version.

    Raises:
        StackError: There is no such version.
    """
    if version not in VERSIONS:
        raise StackError(f"there is no Cassandra {version} in the local stack; there are: {', '.join(VERSIONS)}")
    return VERSIONS[version]


def node_settings(
    data: Path,
    *,
    host: str,
    port: int,
    storage_port: int,
    seeds: Sequence[str],
    tokens: str,
    cdc: bool,
    durable: bool = False,
) -> dict[str, Any]:
    """The settings (`cassandra.yaml`) of one node. Pure.

    Args:
        data: Folder of all it stores.
        host: Loopback address that it listens on.
        port: Port for clients.
        storage_port: Port for other nodes; the same one on all of them.
        seeds: `host:port` of the nodes that others ask first.
        tokens: Its places in the ring, a comma list.
        cdc: Whether commit log segments of tables with `cdc = true` are kept for readers.
        durable: Whether a write is answered only once it is on the disk, so that a killed node loses nothing it confirmed.
    """
    sync = {"commitlog_sync": "batch"} if durable else {"commitlog_sync": "periodic", "commitlog_sync_period": "1000ms"}
    return {
        "cluster_name": "millrace",
        "num_tokens": len(tokens.split(",")),
        "initial_token": tokens,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "SimpleSnitch",
        "seed_provider": [
            {
                "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                "parameters": [{"seeds": ",".join(seeds)}],
            }
        ],
        "listen_address": host,
        "rpc_address": host,
        "storage_port": storage_port,
        "native_transport_port": port,
        "auto_bootstrap": False,
        "data_file_directories": [str(data / "data")],
        "commitlog_directory": str(data / "commitlog"),
        "saved_caches_directory": str(data / "saved_caches"),
        "hints_directory": str(data / "hints"),
        "cdc_raw_directory": str(data / "cdc_raw"),
        "cdc_enabled": cdc,
        **sync,
        # A mutation may have half of a segment: room for a value of 16 MB in the base table and its log row in one batch.
        "commitlog_segment_size": "96MiB" if not cdc else "32MiB",
        "native_transport_max_frame_size": "64MiB",
        "auto_snapshot": False,
        "snapshot_before_compaction": False,
        "key_cache_size": "8MiB",
        "file_cache_size": "64MiB",
        "memtable_heap_space": "256MiB",
        "memtable_offheap_space": "128MiB",
        "concurrent_reads": 8,
        "concurrent_writes": 8,
        "concurrent_compactors": 1,
        # A machine that is shared with tests stalls now and then.
        "read_request_timeout": "15s",
        "range_request_timeout": "20s",
        "write_request_timeout": "15s",
        "request_timeout": "20s",
        "native_transport_timeout": "30s",
        "batch_size_warn_threshold": "4MiB",
        "batch_size_fail_threshold": "64MiB",
        "unlogged_batch_across_partitions_warn_threshold": 1000,
        "tombstone_failure_threshold": 1_000_000,
        "tombstone_warn_threshold": 1_000_000,
    }


@dataclass(slots=True)
class CassandraNode(Managed):
    """One Cassandra node on the loopback address; data found in its folder is used again.

    Attributes:
        state_dir: Folder of configuration, data and log.
        port: Port for clients when it is free; None for any port.
        host: Loopback address it listens on; several nodes of one cluster have one each.
        storage_port: Port for other nodes, the same on all nodes of a cluster; None for any free one.
        seeds: `host:storage_port` of the first nodes of the cluster; empty for a cluster of its own.
        tokens: Its places in the ring, a comma list.
        cdc: Whether commit log segments are kept for readers (`cdc_enabled`).
        durable: Whether a write is answered only once it is on the disk; else a killed node loses its last second.
        settings: Settings that override those of `node_settings`.
        properties: Further system properties of the JVM (`cassandra.*`).
        heap: Heap of the server.
        version: `5.0`, or one of the others in `VERSIONS`.
        jmx: Whether it accepts management commands, such as the one to leave the ring; see `nodetool`.
        jvm_options: Further options of the JVM, see `jvm.FAST_START`.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = DEFAULT_PORT
    host: str = LOOPBACK
    storage_port: int | None = None
    seeds: Sequence[str] = ()
    tokens: str = "0"
    cdc: bool = True
    durable: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    heap: Heap = field(default_factory=lambda: Heap(256, 1200))
    version: str = "5.0"
    jmx: bool = False
    jvm_options: Sequence[str] = ()
    detached: bool = False
    start_timeout: float = 120.0
    say: Say = drop_line
    _jmx_port: int = field(default=0, init=False)
    _promised: bool = field(default=False, init=False)

    @property
    def address(self) -> str:
        """`host:port` for clients; known before the start, and from then on the same."""
        _ = self.service
        self._promised = True
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> Path:
        """Folder of all it stores: `data`, `commitlog`, `cdc_raw` ..."""
        return self.state_dir.absolute() / "data"

    @property
    def cdc_raw(self) -> Path:
        """Folder in which it leaves segments of its commit log for readers, once it runs with `cdc`."""
        return self.data / "cdc_raw"

    @property
    def commitlog(self) -> Path:
        """Folder of its commit log."""
        return self.data / "commitlog"

    def nodetool(self, *arguments: str, timeout: float = _NODETOOL_TIMEOUT) -> str:
        """Run Cassandra's `nodetool` against it and return what it says; it needs `jmx`. Takes about two seconds.

        Raises:
            StackError: It failed, with what it said, or took longer than `timeout` seconds.
        """
        service = self.service
        if not self._jmx_port:
            raise StackError(f"{service.name} was started without jmx=True, so nodetool cannot reach it")
        folder = self.state_dir.absolute()
        options = [f"-Duser.home={folder}", f"-Dlogback.configurationFile={folder / 'logback.xml'}"]
        options += JAVA_MODULES
        where = ["-h", LOOPBACK, "-p", str(self._jmx_port)]
        command = java_command(
            find_java(say=self.say), self._fetch_jars(), _NODETOOL, [*where, *arguments], Heap(32, 128), options
        )  # fmt: skip
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise StackError(
                f"nodetool {' '.join(arguments)} took longer than {timeout:g} s at {service.name}; "
                f"see its log {service.log_path}"
            ) from None
        if result.returncode:
            said = f"{result.stdout[-1500:]}{result.stderr[-1500:]}"
            raise StackError(f"nodetool {' '.join(arguments)} failed at {service.name}: {said}")
        return result.stdout

    def _fetch_jars(self) -> list[Path]:
        return ArtifactResolver(say=self.say).fetch(
            load_manifest().members(artifact_set(self.version)), f"Cassandra {self.version}"
        )

    def redraw(self, said: str) -> bool:
        """Choose others in place of ports that somebody else has by what its log says; False: none of them may be changed.

        That of `nodetool` is the node's own affair, and so is the one for other nodes where it is alone. That for clients stays
        once somebody may count on it: the node has answered, or its `address` was asked for. Several nodes have the same ports.
        `service.command` is another one afterwards.
        """
        service, own_ports = self.service, {self._jmx_port}
        if not self.seeds:
            own_ports |= {self.storage_port or 0} if self._promised else {self.storage_port or 0, self.port or 0}
        if not taken_ports(said) & own_ports:
            return False
        if self.port in own_ports:
            self.port = free_port(self.port, host=self.host)
        if self.storage_port in own_ports:
            self.storage_port = free_port(self.storage_port, (self.port or 0,), self.host)
        self._jmx_port = self._free_for_jmx()
        service.name, service.command = self._service_name(), self._write_config()
        return True

    def _prepare(self) -> Service:
        self.port, self.storage_port = free_ports([self.port, self.storage_port], self.host)
        self._jmx_port = self._free_for_jmx()
        return Service(
            name=self._service_name(),
            command=self._write_config(),
            log_path=self.state_dir.absolute() / "cassandra.log",
            ready=self._is_answering,
            detached=self.detached,
            start_timeout=self.start_timeout,
            revise=lambda _, said: self.redraw(said),
        )

    def _service_name(self) -> str:
        return f"Cassandra ({self.host}:{self.port})"

    def _free_for_jmx(self) -> int:
        return free_port(used_ports=(self.port or 0, self.storage_port or 0)) if self.jmx else 0

    def _is_answering(self) -> bool:
        answers = speaks_cql(self.port or 0, self.host)
        self._promised = self._promised or answers
        return answers

    def _write_config(self) -> list[str]:
        """Write its configuration, and the command that starts it with that."""
        java = find_java(say=self.say)
        jars = self._fetch_jars()
        folder = self.state_dir.absolute()
        self.data.mkdir(parents=True, exist_ok=True)
        settings = node_settings(
            self.data,
            host=self.host,
            port=self.port or 0,
            storage_port=self.storage_port or 0,
            seeds=self.seeds or [f"{self.host}:{self.storage_port}"],
            tokens=self.tokens,
            cdc=self.cdc,
            durable=self.durable,
        )
        settings = {name: value for name, value in settings.items() if name not in _UNKNOWN.get(self.version, ())}
        config = folder / "cassandra.yaml"
        config.write_text(json.dumps({**settings, **self.settings}, indent=1), encoding="utf-8")  # JSON is YAML too
        logback = folder / "logback.xml"
        logback.write_text(_LOGBACK, encoding="utf-8")
        properties = {
            "cassandra.config": config.as_uri(),
            "cassandra.storagedir": str(self.data),
            "logback.configurationFile": str(logback),
            "cassandra-foreground": "yes",  # else it closes its output
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "0",
            "cassandra.superuser_setup_delay_ms": "0",
            "jdk.attach.allowAttachSelf": "true",
            "io.netty.tryReflectionSetAccessible": "true",
            **({"cassandra.jmx.local.port": str(self._jmx_port)} if self.jmx else {}),
            **self.properties,
        }
        # 4.1 measures objects with a jamm that fails on Java 17's lambdas, unless it runs as an agent.
        agents = [f"-javaagent:{jar}" for jar in jars if jar.name.startswith("jamm-")] if self.version == "4.1" else []
        options = [
            *self.jvm_options,
            *agents,
            *JAVA_MODULES,
            *(f"-D{key}={value}" for key, value in properties.items()),
        ]
        return java_command(java, jars, _MAIN, (), self.heap, options)
