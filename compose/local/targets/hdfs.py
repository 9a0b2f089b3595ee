"""HDFS as one plain process: a NameNode and a DataNode, with the jars of pyspark and Hadoop's own test cluster."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from compose.local.ports import LOOPBACK, free_port
from compose.local.process.jvm import Heap, java_command
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import Unavailable
from worker.fetch.java import FAST_START, find_java
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import Say, drop_line


@dataclass(slots=True)
class Hdfs(Managed):
    """One HDFS on the loopback address; made new at each start.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port of the NameNode when it is free; None for any port.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = None
    detached: bool = False
    start_timeout: float = 120.0
    say: Say = drop_line

    @property
    def url(self) -> str:
        """Its root for Hadoop's clients; known before the start."""
        _ = self.service
        return f"hdfs://{LOOPBACK}:{self.port}"

    def _prepare(self) -> Service:
        spark = find_spec("pyspark")
        if spark is None or spark.origin is None:
            raise Unavailable("HDFS uses the jars of pyspark, which is not installed: pip install millrace[spark]")
        jars = ArtifactResolver(say=self.say).fetch(load_manifest().members("hdfs"), "HDFS")
        self.port = free_port(self.port)
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        details = folder / "details.json"  # written when the cluster is up
        details.unlink(missing_ok=True)
        arguments = ["-format", "-nnport", str(self.port), "-datanodes", "1", "-writeDetails", str(details)]
        return Service(
            name=f"HDFS ({LOOPBACK}:{self.port})",
            command=java_command(
                find_java(say=self.say),
                [*jars, Path(spark.origin).parent / "jars" / "*"],
                "org.apache.hadoop.test.MiniDFSClusterManager",
                arguments,
                Heap(64, 256),
                [f"-Dtest.build.data={folder / 'data'}", *FAST_START],
            ),
            log_path=folder / "hdfs.log",
            ready=lambda: details.exists() and details.stat().st_size > 0,
            detached=self.detached,
            start_timeout=self.start_timeout,
        )
