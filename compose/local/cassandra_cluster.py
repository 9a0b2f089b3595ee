"""Several Cassandra nodes on 127.0.0.1, 127.0.0.2 ... that form one cluster. Everything here blocks."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from compose.local.cassandra import CassandraNode
from compose.local.ports import free_port, is_free
from compose.local.process.jvm import Heap
from compose.local.process.service import wait_until
from compose.local.scylla.wire import WireConnection
from worker.fetch.errors import StackError
from worker.terminal import Say, drop_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_RING: Final = 1 << 64
_NETWORK: Final = "127.0.0."
_MOST: Final = 9


def even_tokens(count: int) -> list[int]:
    """Tokens that divide the ring of Murmur3 into equal parts. Pure."""
    return [-(_RING >> 1) + _RING // count * number + _RING // count // 2 for number in range(count)]


def middle_token(tokens: Sequence[int]) -> int:
    """The middle of the widest part of the ring: where one more node takes most off the others. Pure."""
    ordered = sorted(tokens)
    nexts = [*ordered[1:], ordered[0] + _RING]
    width, before = max((after - before, before) for before, after in zip(ordered, nexts, strict=True))
    middle = (before + width // 2 + (_RING >> 1)) % _RING - (_RING >> 1)
    return max(middle, 1 - (_RING >> 1))  # the least number is no token


@dataclass(slots=True)
class CassandraCluster:
    """Nodes ``cass-1``, ``cass-2`` ... with the same ports on addresses of their own; data found in its folder is used again.

    Every node takes an equal part of the ring and keeps its change log. Members are killed, paused and started again by
    themselves: ``cluster.members[1].kill()``, ``.start()``.

    Attributes:
        state_dir: Folder of all nodes.
        nodes: How many there are at first.
        port: Port for clients when it is free on all addresses; None for any.
        durable: See `CassandraNode`.
        settings: Settings of all nodes that override the usual ones.
        properties: System properties of all nodes.
        heap: Heap of each node.
        jvm_options: Options of each JVM, see `jvm.FAST_START`.
        version: Which Cassandra, see `CassandraNode`.
        start_timeout: Seconds that each may take to answer.
        say: Where progress lines go.
        members: The nodes, in the order of their addresses; those that left are not among them.
    """

    state_dir: Path
    nodes: int = 3
    port: int | None = None
    durable: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    heap: Heap = field(default_factory=lambda: Heap(128, 512))
    jvm_options: Sequence[str] = ()
    version: str = "5.0"
    start_timeout: float = 180.0
    say: Say = drop_line
    members: list[CassandraNode] = field(default_factory=list, init=False)
    _storage: int = field(default=0, init=False)
    _seeds: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= _MOST:
            raise StackError(f"a cluster has 1 to {_MOST} nodes, not {self.nodes}")
        addresses = [f"{_NETWORK}{number}" for number in range(1, _MOST + 1)]
        self.port = _free_on_all(self.port, (), addresses)
        self._storage = _free_on_all(None, (self.port,), addresses)
        # All of the first nodes are seeds of each other: none has to wait for another, and they start side by side.
        self._seeds = tuple(f"{address}:{self._storage}" for address in addresses[: self.nodes])
        self.members = [self._build_node(number, token) for number, token in enumerate(even_tokens(self.nodes), 1)]

    def _build_node(
        self,
        number: int,
        token: int,
        settings: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CassandraNode:
        return CassandraNode(
            self.state_dir / f"cass-{number}",
            port=self.port,
            host=f"{_NETWORK}{number}",
            storage_port=self._storage,
            seeds=self._seeds,
            tokens=str(token),
            durable=self.durable,
            settings={
                "memtable_heap_space": "96MiB",
                "memtable_offheap_space": "48MiB",
                "concurrent_reads": 4,
                "concurrent_writes": 4,
                **self.settings,
                **(settings or {}),
            },
            # A node that leaves waits that long for its batch log, else for twice the timeout of writes.
            properties={"cassandra.batchlog.replay_timeout_in_ms": "1000", **self.properties, **(properties or {})},
            heap=self.heap,
            jvm_options=self.jvm_options,
            version=self.version,
            jmx=True,
            start_timeout=self.start_timeout,
            say=self.say,
        )

    @property
    def address(self) -> str:
        """`host:port` of the first node."""
        return self.members[0].address

    @property
    def hosts(self) -> str:
        """Comma list of the nodes' addresses, without ports."""
        return ",".join(member.host for member in self.members)

    @property
    def directories(self) -> dict[str, Path]:
        """By node (``cass-1`` ...) the folder in which it leaves its change log."""
        return {member.state_dir.name: member.cdc_raw for member in self.members}

    def start(self) -> Self:
        """Start all nodes side by side and wait until every one of them sees every other one.

        Raises:
            StackError: One did not start, or they do not find each other.
        """
        try:
            for member in self.members:
                member.service.launch()
            for member in self.members:
                member.service.wait_ready()
            self.wait_whole()
        except BaseException:
            self.kill()
            raise
        return self

    def wait_whole(self, timeout: float = 180.0) -> None:
        """Wait until every running node knows all members, and their schemas agree.

        Raises:
            StackError: They do not within ``timeout`` seconds.
        """
        running = [member for member in self.members if member.running]
        if not wait_until(lambda: all(_sees_others(member, len(self.members) - 1) for member in running), timeout, 0.1):
            raise StackError(
                f"the nodes {self.hosts} do not see each other with one schema after {timeout:g} s; "
                f"see their logs, as {self.members[0].log_path}"
            )

    def execute(self, *statements: str, member: int = 0) -> list[dict[str, Any]]:
        """Run CQL statements at one node, see `execute`; after a change of the schema, wait until all running nodes know it."""
        rows: list[dict[str, Any]] = []
        for statement in statements:
            rows = execute_cql(self.members[member].address, statement)
            if statement.lstrip()[:6].upper().rstrip() in {"CREATE", "ALTER", "DROP"}:
                self.wait_whole()
        return rows

    def join(self) -> CassandraNode:
        """Add a node: it takes its share of the data from the others before it answers.

        Raises:
            StackError: There is no room, or it did not come to join.
        """
        used = {int(member.host.rpartition(".")[2]) for member in self.members}
        number = next(
            (
                candidate
                for candidate in range(1, _MOST + 1)
                if candidate not in used and not (self.state_dir / f"cass-{candidate}").exists()
            ),
            0,
        )
        if not number:
            raise StackError(f"the cluster in {self.state_dir} has used all of its {_MOST} addresses")
        token = middle_token([int(member.tokens) for member in self.members])
        # It has to hear of the others before it asks them for data, so it waits where the first nodes need not.
        newcomer = self._build_node(number, token, {"auto_bootstrap": True}, {"cassandra.ring_delay_ms": "4000"})
        newcomer.start()
        self.members.append(newcomer)
        self.wait_whole()
        return newcomer

    def leave(self, member: CassandraNode) -> None:
        """Have a node give its data to the others and leave for good, then end it. Its folder stays, with its change log.

        Raises:
            StackError: It could not leave.
        """
        member.nodetool("decommission", "--force")
        self.members.remove(member)
        member.stop()
        self.wait_whole()

    def kill(self) -> None:
        """End all nodes at once, as a power cut would."""
        for member in self.members:
            member.kill()

    def stop(self) -> None:
        """Shut all nodes down in good order, side by side."""
        running = [member for member in self.members if member.running]
        for member in running:
            member.service.terminate()
        for member in running:
            member.service.wait_stopped()

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """End it; what it has is thrown away with its folder, so nothing is saved first."""
        self.kill()


def execute_cql(address: str, *statements: str) -> list[dict[str, Any]]:
    """Run CQL statements at ``host:port``; the rows of the last one, cells as bytes.

    Raises:
        StackError: A statement was refused, with the reason, or nothing answers there.
    """
    with closing(WireConnection(address)) as client:
        rows: list[dict[str, Any]] = []
        try:
            for statement in statements:
                rows = client.query(statement)
        except OSError as error:
            raise StackError(f"no Cassandra answers at {address}: {error}; is it running?") from error
        return rows


def _free_on_all(preferred: int | None, used_ports: Sequence[int], addresses: Sequence[str]) -> int:
    for _ in range(100):
        port = free_port(preferred, used_ports)
        if all(is_free(port, address) for address in addresses):
            return port
        preferred = None
    raise StackError(f"no port is free on all of {', '.join(addresses)}; stop some servers")


def _read_view(member: CassandraNode) -> tuple[int, set[Any]]:
    """How many others a node knows, and the versions of the schema that it knows of."""
    peers = execute_cql(member.address, "SELECT peer, schema_version FROM system.peers")
    (local,) = execute_cql(member.address, "SELECT schema_version FROM system.local")
    return len(peers), {row["schema_version"] for row in (*peers, local)}


def _sees_others(member: CassandraNode, others: int) -> bool:
    try:
        peers, versions = _read_view(member)
    except StackError:
        return False
    return peers == others and len(versions) == 1
