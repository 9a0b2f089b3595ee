"""HBase with its Thrift 2 server as plain processes: jars from a Maven repository, files in a folder, ZooKeeper inside."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from xml.sax.saxutils import escape

from compose.local.ports import LOOPBACK, free_ports
from compose.local.process.jvm import Heap, java_command
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import Say, drop_line

DEFAULT_PORT: Final = 9090
#: HBase 2 logs by log4j 1.
_LOG: Final = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{1}: %m%n
"""
#: What Java 17 hides and HBase needs.
_OPENED: Final = (
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.nio", "sun.nio.ch", "java.util")),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
)


def accepts_connections(port: int, timeout: float = 1.0) -> bool:
    """Whether something listens on the port; blocks for about `timeout` seconds at most."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout):
            return True
    except OSError:
        return False


@dataclass(slots=True)
class HBase(Managed):
    """One HBase (master, region server and ZooKeeper in one process) and one Thrift 2 server on the loopback address.

    `kill`, `pause` and the like are about the Thrift server, which is the process that clients see.

    Attributes:
        state_dir: Folder of its data and logs.
        port: Port of the Thrift server when it is free; None for any port.
        heap: Size of HBase's heap.
        jvm_options: Further options of both JVMs, see `jvm.FAST_START`.
        settings: Settings that override those made here (`hbase-site.xml`).
        detached: Whether it outlives this program.
        start_timeout: Seconds that each process may take to answer.
        say: Where progress lines go (downloads).
        master: HBase's own process; prepared with `service`.
    """

    state_dir: Path
    port: int | None = DEFAULT_PORT
    heap: Heap = field(default_factory=Heap)
    jvm_options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    start_timeout: float = 120.0
    say: Say = drop_line
    master: Service = field(init=False, repr=False)

    @property
    def address(self) -> str:
        """`host:port` for clients; known before the start."""
        _ = self.service
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> Self:
        """Start both (again), on the same ports and data, and wait until they are ready."""
        service = self.service
        self.master.start()
        service.start()
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Shut both down. HBase ends without ceremony: its log of writes is read at the next start."""
        self.service.stop(timeout)
        self.master.kill()

    def _prepare(self) -> Service:
        java = find_java(say=self.say)
        jars = ArtifactResolver(say=self.say).fetch(load_manifest().members("hbase"), "HBase")
        self.port, zookeeper, master, regions = free_ports([self.port, None, None, None])
        folder = self.state_dir.absolute()
        config = folder / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "log4j.properties").write_text(_LOG, encoding="utf-8")
        settings = {
            "hbase.rootdir": (folder / "data").as_uri(),
            "hbase.tmp.dir": str(folder / "tmp"),
            "hbase.zookeeper.property.dataDir": str(folder / "zookeeper"),
            "hbase.zookeeper.property.clientPort": str(zookeeper),
            "hbase.zookeeper.quorum": LOOPBACK,
            "hbase.master.ipc.address": LOOPBACK,
            "hbase.regionserver.ipc.address": LOOPBACK,
            "hbase.master.hostname": LOOPBACK,
            "hbase.regionserver.hostname": LOOPBACK,
            "hbase.master.port": str(master),
            "hbase.regionserver.port": str(regions),
            "hbase.master.info.port": "-1",
            "hbase.regionserver.info.port": "-1",
            # A local file system has no hflush: what is written survives a process, but not a power cut.
            "hbase.unsafe.stream.capability.enforce": "false",
            "hbase.wal.provider": "filesystem",
            **self.settings,
        }
        lines = [
            f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
            for name, value in settings.items()
        ]
        site = f"<configuration>\n{''.join(lines)}</configuration>\n"
        (config / "hbase-site.xml").write_text(site, encoding="utf-8")
        options = [*_OPENED, "-Dzookeeper.admin.enableServer=false", f"-Djava.io.tmpdir={folder}", *self.jvm_options]
        package = "org.apache.hadoop.hbase"

        def service(name: str, main: str, arguments: list[str], heap: Heap, port: int) -> Service:
            return Service(
                name=f"{name} ({LOOPBACK}:{port})",
                command=java_command(java, [config, *jars], f"{package}.{main}", arguments, heap, options),
                log_path=folder / f"{main.rpartition('.')[2]}.log",
                ready=lambda: accepts_connections(port),
                detached=self.detached,
                start_timeout=self.start_timeout,
            )

        thrift = ["start", "-p", str(self.port), "--bind", LOOPBACK, "--infoport", "-1", "-threadpool"]
        self.master = service("HBase", "master.HMaster", ["start"], self.heap, master)
        return service("HBase's Thrift server", "thrift2.ThriftServer", thrift, Heap(64, 256), self.port)
