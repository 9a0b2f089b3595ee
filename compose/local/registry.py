"""A schema registry (Apicurio) that speaks Confluent's API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compose.local.ports import LOOPBACK, free_ports
from compose.local.process.http import is_answering
from compose.local.process.jvm import Heap
from compose.local.process.service import Managed, Service
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver
from worker.fetch.unpack import unpack_tar
from worker.terminal import Say, drop_line

DEFAULT_PORT = 8081
_JAVA_MINIMUM = 21
_API = "/apis/ccompat/v7"


@dataclass(slots=True)
class SchemaRegistry(Managed):
    """One registry; its schemas are kept in a database file, so they survive a restart.

    Attributes:
        state_dir: Folder of its data and log.
        port: Port when it is free; None for any port.
        properties: Further properties of the server (`apicurio.*`, `quarkus.*`).
        heap: Heap of the server.
        jvm_options: Further options of the JVM, see `jvm.FAST_START`.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = DEFAULT_PORT
    properties: Mapping[str, str] = field(default_factory=dict)
    heap: Heap = field(default_factory=lambda: Heap(64, 384))
    jvm_options: Sequence[str] = ()
    detached: bool = False
    start_timeout: float = 90.0
    say: Say = drop_line

    @property
    def url(self) -> str:
        """Root of the Confluent API, as clients want it in `schema.registry.url`; known before the start."""
        _ = self.service
        return f"http://{LOOPBACK}:{self.port}{_API}"

    def _prepare(self) -> Service:
        java = find_java(_JAVA_MINIMUM, say=self.say)
        (artifact,) = load_manifest().members("registry")
        (archive,) = ArtifactResolver(say=self.say).fetch([artifact], "the schema registry")
        program = unpack_tar(archive, cache_dir() / "unpacked" / artifact.sha256)
        self.port, management = free_ports([self.port, None])
        folder = self.state_dir.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        properties = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self.port),
            # Health and metrics; would be on port 9000 of all addresses otherwise.
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": str(management),
            "quarkus.http.access-log.enabled": "false",
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": f"jdbc:h2:file:{folder / 'schemas'};WRITE_DELAY=0",
            **self.properties,
        }
        options = [*self.heap.options, *self.jvm_options, *(f"-D{key}={value}" for key, value in properties.items())]
        return Service(
            name=f"schema registry ({LOOPBACK}:{self.port})",
            command=[str(java.executable), *options, "-jar", str(program / "quarkus-run.jar")],
            log_path=folder / "registry.log",
            ready=lambda: is_answering(f"http://{LOOPBACK}:{self.port}{_API}/subjects"),
            detached=self.detached,
            start_timeout=self.start_timeout,
        )
