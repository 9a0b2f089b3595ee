"""The Scylla emulation as a service of the local stack: start, stop, kill and pause it like any other server."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.local.cassandra import CassandraNode, speaks_cql
from compose.local.ports import LOOPBACK, free_port, free_ports, taken_ports
from compose.local.process.jvm import Heap
from compose.local.process.service import Managed, Service
from compose.local.scylla.dress import Streams, dressed_data
from worker.terminal import Say, drop_line

DEFAULT_PORT = 9042
_ROOT = Path(__file__).parents[3]


@dataclass(slots=True)
class ScyllaEmulation(Managed):
    """One emulated Scylla node: a Cassandra dressed as Scylla and a CQL proxy, in one process group.

    Attributes:
        state_dir: Folder of configuration, data and log; data found there is used again.
        port: Port of the proxy, the one for clients, when it is free; None for any.
        inner_port: Port of the Cassandra behind it; None for any.
        streams: Which tables describe the streams, see `dress.Streams`.
        durable: Whether a write is answered only once it is on the disk; else a killed one loses its last second.
        settings: Settings of the Cassandra, see `CassandraNode.settings`.
        heap: Heap of the Cassandra.
        jvm_options: Further options of its JVM, see `jvm.FAST_START`.
        detached: Whether it outlives this program.
        start_timeout: Seconds it may take to answer.
        say: Where progress lines go (downloads).
    """

    state_dir: Path
    port: int | None = DEFAULT_PORT
    inner_port: int | None = None
    streams: Streams = "v2"
    durable: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    heap: Heap = field(default_factory=lambda: Heap(256, 1200))
    jvm_options: Sequence[str] = ()
    detached: bool = False
    start_timeout: float = 120.0
    say: Say = drop_line
    _promised: bool = field(default=False, init=False)
    _node: CassandraNode = field(init=False)

    @property
    def address(self) -> str:
        """`host:port` for clients, with all tables that Scylla has; known before the start, and from then on the same."""
        _ = self.service
        self._promised = True
        return f"{LOOPBACK}:{self.port}"

    @property
    def direct(self) -> str:
        """`host:port` of the Cassandra: everything but the tables of tablets, without the proxy between."""
        _ = self.service
        self._promised = True
        return f"{LOOPBACK}:{self.inner_port}"

    def _prepare(self) -> Service:
        folder = self.state_dir.absolute()
        self.port, inner = free_ports([self.port, self.inner_port])
        node = self._node = CassandraNode(
            folder, port=inner, cdc=False, durable=self.durable, settings=self.settings, heap=self.heap,
            jvm_options=self.jvm_options, say=self.say,
        )  # fmt: skip
        if not node.data.exists():
            dressed_data(node.data, self.streams, self.say)
        return Service(
            name=self._service_name(),
            command=self._server_command(node),
            log_path=folder / "scylla-emulation.log",
            ready=self._is_answering,
            environment={"PYTHONPATH": str(_ROOT)},
            folder=folder,
            detached=self.detached,
            start_timeout=self.start_timeout,
            revise=self._redraw_ports,
        )

    def _service_name(self) -> str:
        return f"Scylla emulation ({LOOPBACK}:{self.port})"

    def _server_command(self, node: CassandraNode) -> list[str]:
        command = node.service.command  # prepares it, which may choose another port
        self.inner_port = node.port
        return [sys.executable, "-m", "compose.local.scylla.server", LOOPBACK, str(self.port), str(node.port), *command]

    def _is_answering(self) -> bool:
        answers = speaks_cql(self.port or 0)
        self._promised = self._promised or answers
        return answers

    def _redraw_ports(self, service: Service, said: str) -> bool:
        """Choose other ports in place of those that somebody else has, as `CassandraNode.redraw` does."""
        if self._promised:
            _ = self._node.address  # who knows the one port may know the other
        changed = self._node.redraw(said)
        if not self._promised and self.port in taken_ports(said):
            self.port, changed = free_port(self.port, (self._node.port or 0,)), True
        if changed:
            service.name, service.command = self._service_name(), self._server_command(self._node)
        return changed
