"""The only module that talks to the CQL driver: a cluster's connections, statements, and where a query is sent.

Everything named ``open_`` or ``prepare`` here blocks and belongs in a thread. Callbacks come on the driver's own thread.
"""

from __future__ import annotations

import contextlib
import logging
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import cassandra
import cramjam
from cassandra import AuthenticationFailed, ConsistencyLevel
from cassandra import connection as driver_connection
from cassandra.auth import AuthProvider, PlainTextAuthenticator
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, DefaultConnection, ExecutionProfile, ResponseFuture
from cassandra.connection import ConnectionException
from cassandra.metadata import KeyspaceMetadata
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    HostDistance,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import PrepareMessage
from cassandra.query import BoundStatement, PreparedStatement, SimpleStatement

from connectors.cql.cluster.failures import SchemaChanged, explain_error, translate_error
from connectors.cql.cluster.tls import ssl_context
from connectors.cql.encoding import make_encoder
from connectors.cql.rows import HAVE_C, CqlRowDecoder, RawProtocolHandler, RawRows, keep_raw
from connectors.cql.types import CqlType, has_newer_fields, same_on_the_wire, to_text
from connectors.errors import ConfigInvalid, Fatal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connectors.cql.cluster.session import SessionSettings
    from connectors.errors import MillraceError

LOG: Final = logging.getLogger(__name__)
#: The most seconds between retries of the connection to a node that is unavailable.
RECONNECT_CEILING_S: Final = 5.0
COMPRESSIONS: Final = ("none", "lz4", "snappy")
#: All of them: a filter by name would need the name quoted, and there are few.
_REPLICATION: Final = "SELECT keyspace_name, replication FROM system_schema.keyspaces"


def driver_version() -> str:
    """The driver that is installed, for logs and the connector's state: ``scylla-driver 3.29.3, C extensions``."""
    from importlib.metadata import PackageNotFoundError, version

    name = "cassandra-driver"
    with contextlib.suppress(PackageNotFoundError):
        version("scylla-driver")
        name = "scylla-driver"
    extensions = "C extensions" if HAVE_C else "no C extensions: decoding of rows costs several times as much"
    return f"{name} {cassandra.__version__}, {extensions}"


class _Retry(RetryPolicy):  # type: ignore[misc]
    """Another node, never a lower consistency level: queries here only read, or may be repeated."""

    def on_read_timeout(self, query: Any, consistency: Any, *arguments: Any, retry_num: int = 0, **rest: Any) -> Any:
        """One more try on the next node."""
        del query, arguments, rest
        return (self.RETRY_NEXT_HOST, consistency) if retry_num == 0 else (self.RETHROW, None)

    def on_unavailable(self, query: Any, consistency: Any, *arguments: Any, retry_num: int = 0, **rest: Any) -> Any:
        """One more try on the next node: it may see more replicas."""
        del query, arguments, rest
        return (self.RETRY_NEXT_HOST, consistency) if retry_num == 0 else (self.RETHROW, None)

    def on_request_error(self, query: Any, consistency: Any, error: Any, retry_num: int) -> Any:
        """A node that is overloaded, starting or gone: the next one, twice at most."""
        del query, error
        return (self.RETRY_NEXT_HOST, consistency) if retry_num < 2 else (self.RETHROW, None)

    def on_write_timeout(self, query: Any, consistency: Any, *arguments: Any, retry_num: int = 0, **rest: Any) -> Any:
        """Never again: it may have been done."""
        del query, consistency, arguments, retry_num, rest
        return self.RETHROW, None


class _Routing(TokenAwarePolicy):  # type: ignore[misc]
    """Replicas first. A statement may name its token itself (``routing_token``) where it is not the key's hash."""

    def make_query_plan(self, working_keyspace: Any = None, query: Any = None) -> Iterator[Any]:
        """Nodes in the order in which they are tried."""
        token = getattr(query, "routing_token", None)
        token_map = None if token is None else self._cluster_metadata.token_map
        if token_map is None:
            yield from super().make_query_plan(working_keyspace, query)
            return
        child = self._child_policy
        keyspace = query.keyspace or working_keyspace
        first = [
            host
            for host in token_map.get_replicas(keyspace, token_map.token_class(token))
            if host.is_up and child.distance(host) not in {HostDistance.REMOTE, HostDistance.IGNORED}
        ]
        yield from first
        for host in child.make_query_plan(keyspace, query):
            if host not in first:
                yield host


def _offer_compression() -> None:
    """Let the driver use LZ4 and Snappy of cramjam, which is there anyway, unless it found packages of its own."""
    block, snappy = cramjam.lz4, cramjam.snappy

    def compress(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + bytes(block.compress_block(data, store_size=False))

    def decompress(data: bytes) -> bytes:
        size = int.from_bytes(data[:4], "big")
        return bytes(block.decompress_block(data[4:], output_len=size)) if size else b""

    supported = driver_connection.locally_supported_compressions
    supported.setdefault("lz4", (compress, decompress))
    supported.setdefault(
        "snappy", (lambda data: bytes(snappy.compress_raw(data)), lambda data: bytes(snappy.decompress_raw(data)))
    )


class PreparedCql:
    """A prepared statement with the decoder of its rows."""

    __slots__ = ("_encoders", "columns", "decoder", "newer_fields", "prepared", "text", "types")

    def __init__(self, cql: str, prepared: Any, types: Sequence[CqlType | None] | None) -> None:
        self.text = cql
        self.prepared = prepared
        self.types = types
        self._encoders = [make_encoder(column.type) for column in prepared.column_metadata or ()]
        #: The very list that the decoder was made for: the driver replaces it when it has to prepare again.
        self.columns = prepared.result_metadata
        self.decoder = row_decoder(cql, self.columns or (), types)
        #: Whether the server knows fields of a UDT that ``types`` do not have; they are left out.
        self.newer_fields = _newer_fields(self.columns or (), types)

    def bind(self, parameters: Sequence[Any], fetch_size: int, consistency: str, token: int | None) -> Any:
        """The statement to send; encodes ``parameters`` in the forms of ``connectors.cql.values``.

        Raises:
            Fatal: their number or their types are wrong.
        """
        if len(parameters) != len(self._encoders):
            raise Fatal(f"{len(parameters)} parameters for a query with {len(self._encoders)} places: {self.text}")
        bound = BoundStatement(self.prepared, fetch_size=fetch_size, consistency_level=consistency_level(consistency))
        try:
            bound.values = [
                None if value is None else encode(value)
                for encode, value in zip(self._encoders, parameters, strict=True)
            ]
        except Exception as error:
            raise Fatal(f"a parameter of the query {self.text} does not fit: {error}") from error
        bound.raw_values = ()
        bound.is_idempotent = True
        if token is not None:
            bound.routing_token = token
        return bound

    def decode(self, rows: RawRows) -> list[tuple[Any, ...]]:
        """The page's rows; makes a new decoder first if the server's columns are not those it was made for.

        Raises:
            SchemaChanged: the columns are of other types than those asked for.
        """
        columns = rows.columns if rows.columns is not None else self.prepared.result_metadata
        # Some servers send the columns with every page, as they were.
        if columns is not self.columns and columns != self.columns:
            self.decoder = row_decoder(self.text, columns, self.types)
            self.newer_fields = _newer_fields(columns, self.types)
            self.columns = columns
        return self.decoder.decode(rows.body)


def row_decoder(cql: str, columns: Sequence[Any], types: Sequence[CqlType | None] | None) -> CqlRowDecoder:
    """The decoder for ``columns`` of a result, with ``types`` in place of what the server says if they are given.

    Raises:
        SchemaChanged: a type can't be decoded as the one asked for.
    """
    names = [column[2] for column in columns]
    actual = [column[3] for column in columns]
    if types is None:
        return CqlRowDecoder(names, actual)
    if len(types) != len(names):
        raise SchemaChanged(f"the server sends {len(names)} columns where {len(types)} are expected (query: {cql})")
    for name, expected, kind in zip(names, types, actual, strict=True):
        if expected is not None and not same_on_the_wire(expected, kind):
            raise SchemaChanged(
                f"column {name} is of type {to_text(kind)} where {to_text(expected)} is expected (query: {cql})"
            )
    return CqlRowDecoder(names, types)


def _newer_fields(columns: Sequence[Any], types: Sequence[CqlType | None] | None) -> bool:
    return any(
        expected is not None and has_newer_fields(expected, column[3])
        for expected, column in zip(types or (), columns, strict=False)
    )


def consistency_level(name: str) -> int:
    """The driver's number of a consistency level.

    Raises:
        ConfigInvalid: there is no such level.
    """
    level: int | None = ConsistencyLevel.name_to_value.get(name.upper())
    if level is None:
        raise ConfigInvalid(
            f"{name!r} is no consistency level; use one of {', '.join(sorted(ConsistencyLevel.name_to_value))}"
        )
    return level


def _make_cluster(settings: SessionSettings, context: Any, provider: Any, profile: Any) -> Any:
    """The driver's cluster; resolves names, connects to nothing yet."""
    return Cluster(
        contact_points=list(settings.contact_points),
        auth_provider=provider,
        connection_class=LargeReads,
        # Other nodes are listed without their ports: they have that of the contact points.
        port=settings.contact_points[0][1],
        compression={"none": False}.get(settings.compression, settings.compression),
        ssl_context=context,
        protocol_version=settings.protocol_version,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        schema_metadata_enabled=False,
        token_metadata_enabled=True,
        prepare_on_all_hosts=False,
        reprepare_on_up=False,
        reconnection_policy=ExponentialReconnectionPolicy(0.5, RECONNECT_CEILING_S, None),
        connect_timeout=settings.connect_timeout_s,
        control_connection_timeout=settings.connect_timeout_s,
        idle_heartbeat_interval=settings.heartbeat_s,
        idle_heartbeat_timeout=settings.heartbeat_s,
    )


class _Login(AuthProvider):  # type: ignore[misc]
    """Logs each new connection in with the password as it is then: it may be rotated while the session lives.

    Attributes:
        password: gives it; called on any thread.
        let_in: whether the credentials were taken once.
        refusal: what a node said when it refused them at the last attempt to connect; None: it did not.
    """

    def __init__(self, user: str, password: Callable[[], str]) -> None:
        self._user = user
        self.password = password
        self.let_in = False
        self.refusal: str | None = None

    def new_authenticator(self, host: str) -> Any:
        """See the driver's class."""
        del host
        return _Authenticator(self, self._user)


class _Authenticator(PlainTextAuthenticator):  # type: ignore[misc]
    """The login of one connection, or of one after the other: the driver keeps it while it tries to reach a node again."""

    def __init__(self, login: _Login, user: str) -> None:
        super().__init__(user, "")
        self.login = login

    def initial_response(self) -> Any:
        """See the driver's class."""
        self.password = self.login.password()
        return super().initial_response()

    def on_authentication_success(self, token: Any) -> None:
        """See the driver's class."""
        del token
        self.login.let_in = True


class LargeReads(DefaultConnection):  # type: ignore[misc]
    """The driver's connection with larger reads: with its own 4 KiB a page of 1 MB takes the GIL 250 times."""

    in_buffer_size = 65_536

    @classmethod
    def factory(cls, endpoint: Any, timeout: Any, *arguments: Any, **options: Any) -> Any:
        """Open a connection. Blocks.

        The driver gives a node up permanently if it refuses a login. For a session that has logged in before, a refusal is
        reported as a connection that failed: the driver retries it, with the password at that time.
        """
        authenticator = options.get("authenticator")
        login = authenticator.login if isinstance(authenticator, _Authenticator) else None
        refusal = None
        try:
            return super().factory(endpoint, timeout, *arguments, **options)
        except AuthenticationFailed as error:
            if login is None or not login.let_in:
                raise
            refusal = str(error)
            raise ConnectionException(refusal, endpoint) from error
        finally:
            if login is not None:
                login.refusal = refusal


class CqlConnection:
    """A cluster's connections: a driver's session has one per node (per shard with scylla-driver), so several have several."""

    def __init__(self, cluster: Any, sessions: Sequence[Any], addresses: Sequence[str], login: _Login | None) -> None:
        self.cluster = cluster
        self.addresses = addresses
        self._login = login
        self.session = sessions[0]
        self._turns = cycle(sessions)
        self._replication: set[str] = set()

    @classmethod
    def open_(cls, settings: SessionSettings, password: Callable[[], str]) -> CqlConnection:
        """Connect. Blocks.

        Args:
            settings: how.
            password: asked for each connection, on any thread; counts in place of the settings' own.

        Raises:
            Retriable: no node answers.
            ConfigInvalid: wrong credentials, TLS files that can't be used, a data centre that does not exist.
        """
        if not settings.contact_points or settings.connections_per_host < 1:
            raise ConfigInvalid("a session needs a contact point and at least one connection per host")
        if settings.compression not in COMPRESSIONS:
            raise ConfigInvalid(
                f"{settings.compression!r} is no compression of the protocol; use {', '.join(COMPRESSIONS)}"
            )
        if settings.compression != "none":
            _offer_compression()
        context = ssl_context(settings.tls) if settings.tls is not None else None
        provider = _Login(settings.user, password) if settings.user is not None else None
        profile = ExecutionProfile(
            load_balancing_policy=_Routing(DCAwareRoundRobinPolicy(settings.local_dc or "")),
            retry_policy=_Retry(),
            consistency_level=consistency_level(settings.consistency),
            request_timeout=settings.request_timeout_s,
            row_factory=keep_raw,
        )
        try:
            cluster = _make_cluster(settings, context, provider, profile)
        except Exception as error:
            raise translate_error(error, "", settings.addresses) from error
        try:
            sessions = [cluster.connect() for _ in range(settings.connections_per_host)]
            for session in sessions:
                session.client_protocol_handler = RawProtocolHandler
                session.use_client_timestamp = False
        except Exception as error:
            centres = {host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter}
            with contextlib.suppress(Exception):
                cluster.shutdown()
            if settings.local_dc and centres and settings.local_dc not in centres:
                raise ConfigInvalid(
                    f"the cluster has no data centre {settings.local_dc!r}; it has {', '.join(sorted(centres))}"
                ) from error
            raise translate_error(error, "", settings.addresses) from error
        return cls(cluster, sessions, settings.addresses, provider)

    def prepare(self, cql: str, types: Sequence[CqlType | None] | None) -> PreparedCql:
        """Prepare a query. Blocks.

        Raises:
            Retriable: nodes are unavailable (``SchemaChanged``: the query names what does not exist).
            Fatal: the server refuses it.
        """
        try:
            prepared = self._prepare_statement(cql)
        except Exception as error:
            raise self.error(error, cql) from error
        self._learn_replication(prepared)
        return PreparedCql(cql, prepared, types)

    def error(self, error: BaseException, cql: str) -> MillraceError:
        """The error to raise in place of what the driver raised when it was asked ``cql``."""
        return explain_error(
            translate_error(error, cql, self.addresses), self._login.refusal if self._login is not None else None
        )

    def _prepare_statement(self, cql: str) -> Any:
        # Session.prepare is not used: it always uses its own reader of types (see RawProtocolHandler).
        future = ResponseFuture(
            self.session, PrepareMessage(query=cql), query=None, timeout=self.session.default_timeout
        )
        future._protocol_handler = RawProtocolHandler  # noqa: SLF001
        future.send_request()
        response = future.result().one()
        arguments = [
            response.query_id,
            response.bind_metadata,
            response.pk_indexes,
            self.cluster.metadata,
            cql,
            None,
            self.cluster.protocol_version,
            response.column_metadata,
            response.result_metadata_id,
        ]
        if hasattr(response, "is_lwt"):
            # scylla-driver's.
            arguments.append(response.is_lwt)
        prepared = PreparedStatement.from_message(*arguments)
        self.cluster.add_prepared(response.query_id, prepared)
        return prepared

    def _learn_replication(self, prepared: Any) -> None:
        """Tell the driver how the statement's keyspace is replicated, so that it finds replicas: its own metadata are off."""
        columns = prepared.column_metadata or prepared.result_metadata
        keyspace = columns[0][0] if columns else None
        if not keyspace or keyspace in self._replication:
            return
        self._replication.add(keyspace)
        try:
            raw = self.session.execute(SimpleStatement(_REPLICATION, consistency_level=ConsistencyLevel.ONE)).one()
            rows = row_decoder(_REPLICATION, raw.columns or (), None).decode(raw.body)
            options = {entry["key"]: entry["value"] for name, entries in rows if name == keyspace for entry in entries}
            if options:
                strategy = options.pop("class")
                self.cluster.metadata.keyspaces[keyspace] = KeyspaceMetadata(keyspace, True, strategy, options)
                if self.cluster.metadata.token_map is not None:
                    self.cluster.metadata.token_map.rebuild_keyspace(keyspace, build_if_absent=True)
        except Exception as error:  # noqa: BLE001 - queries work without it, with one hop more
            self._replication.discard(keyspace)
            LOG.info("replicas of keyspace %s are not known, queries go to any node: %s", keyspace, error)

    def send(
        self, statement: Any, timeout_s: float, state: bytes | None, done: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Send a statement; ``done(RawRows or None, error)`` is called once, on the driver's thread or at once.

        Does not block.
        """
        future = next(self._turns).execute_async(statement, timeout=timeout_s, paging_state=state)
        future.add_callbacks(lambda rows: done(rows, None), lambda error: done(None, error))

    def simple(self, cql: str, fetch_size: int, consistency: str) -> Any:
        """A statement that is not prepared."""
        return SimpleStatement(
            cql, fetch_size=fetch_size, consistency_level=consistency_level(consistency), is_idempotent=True
        )

    def close(self) -> None:
        """Close all connections. Blocks."""
        with contextlib.suppress(Exception):
            self.cluster.shutdown()
