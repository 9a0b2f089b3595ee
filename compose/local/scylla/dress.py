"""Gives a Cassandra the system tables that Scylla has, once per machine: the dressed data folder is kept in the cache.

User tables cannot be created in `system_distributed`. They are made in a keyspace of our own, their schema rows are copied
under `system_distributed` with a new id, and after one restart they are there and can be written. Tables under `system` and
`system_schema` cannot be had even so; `proxy` sends queries for them to the keyspace `EMULATION`.
"""

# ruff: noqa: S608  # the names in statements are those of tests and of this module

import fcntl
import hashlib
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any, Literal, get_args

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import dict_factory

from compose.local.cassandra import CassandraNode
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import FAST_START
from worker.fetch.paths import cache_dir
from worker.terminal import Say, drop_line, progress

#: Which descriptions of streams a cluster has: those since Scylla 4.4, only the older ones, or both (it was upgraded).
Streams = Literal["v2", "v1", "both"]

#: Keyspace of what cannot be put where Scylla has it.
EMULATION = "scylla_emulation"
#: What the proxy makes of Scylla's names, keyspace and table.
RENAMED = {
    ("system", "cdc_timestamps"): (EMULATION, "cdc_timestamps"),
    ("system", "cdc_streams"): (EMULATION, "cdc_streams"),
    ("system", "cdc_local"): (EMULATION, "cdc_local"),
    ("system_schema", "scylla_keyspaces"): (EMULATION, "scylla_keyspaces"),
}
_FORM = 1  # raised whenever a dressed folder must be recreated
_OWN_TABLES = {
    "cdc_timestamps": "(keyspace_name text, table_name text, timestamp timestamp,"
    " PRIMARY KEY ((keyspace_name, table_name), timestamp)) WITH CLUSTERING ORDER BY (timestamp DESC)",
    "cdc_streams": "(keyspace_name text, table_name text, timestamp timestamp, stream_state tinyint, stream_id blob,"
    " PRIMARY KEY ((keyspace_name, table_name), timestamp, stream_state, stream_id))"
    " WITH CLUSTERING ORDER BY (timestamp DESC, stream_state ASC, stream_id ASC)",
    "cdc_local": "(key text PRIMARY KEY, streams_timestamp timestamp)",
    "scylla_keyspaces": "(keyspace_name text PRIMARY KEY, initial_tablets int,"
    " storage_options frozen<map<text, text>>, storage_type text)",
    # How tokens map to streams: Scylla knows it from its ring, clients never see it.
    "generations": "(key int, time timestamp, PRIMARY KEY (key, time))",
    "shards": "(time timestamp, range_end bigint, streams list<blob>, PRIMARY KEY (time, range_end))",
    "tablets": "(keyspace_name text, table_name text, timestamp timestamp, last_tokens frozen<list<bigint>>,"
    " streams frozen<list<blob>>, PRIMARY KEY ((keyspace_name, table_name), timestamp))",
}
_DISTRIBUTED = {
    "cdc_generation_timestamps": "(key text, time timestamp, expired timestamp, PRIMARY KEY (key, time))"
    " WITH CLUSTERING ORDER BY (time DESC)",
    "cdc_streams_descriptions_v2": "(time timestamp, range_end bigint, streams frozen<set<blob>>,"
    " PRIMARY KEY (time, range_end))",
    "cdc_streams_descriptions": "(time timestamp PRIMARY KEY, streams frozen<set<blob>>, expired timestamp)",
}
_OF: dict[str, tuple[str, ...]] = {
    "v2": ("cdc_generation_timestamps", "cdc_streams_descriptions_v2"),
    "v1": ("cdc_streams_descriptions",),
    "both": tuple(_DISTRIBUTED),
}


def connect_session(address: str, **options: Any) -> tuple[Cluster, Session]:
    """Connect to the one server at `host:port`; rows come as dicts. Blocks."""
    host, _, port = address.rpartition(":")
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([host]), request_timeout=60.0, row_factory=dict_factory
    )
    cluster = Cluster(
        [host], port=int(port), execution_profiles={EXEC_PROFILE_DEFAULT: profile}, compression=False,
        protocol_version=4, connect_timeout=20.0, control_connection_timeout=20.0, **options,
    )  # fmt: skip
    try:
        return cluster, cluster.connect()
    except BaseException:
        cluster.shutdown()
        raise


def dress_cassandra(session: Session, streams: Streams = "v2") -> None:
    """Put Scylla's tables into a Cassandra that has none; they are live after its next start. Blocks."""
    replication = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    for keyspace in ("system_distributed", "system_auth", "system_traces"):
        session.execute(f"ALTER KEYSPACE {keyspace} {replication}")  # a quorum of one node
    session.execute(f"CREATE KEYSPACE IF NOT EXISTS {EMULATION} {replication}")
    for table, definition in _OWN_TABLES.items():
        session.execute(f"CREATE TABLE IF NOT EXISTS {EMULATION}.{table} {definition}")
    if streams == "both":
        session.execute(f"INSERT INTO {EMULATION}.cdc_local (key, streams_timestamp) VALUES ('rewritten', 0)")
    for table in _OF[streams]:
        session.execute(f"CREATE TABLE {EMULATION}.{table} {_DISTRIBUTED[table]}")
        where = f"WHERE keyspace_name = '{EMULATION}' AND table_name = '{table}'"
        for schema in ("tables", "columns"):
            for row in session.execute(f"SELECT * FROM system_schema.{schema} {where}"):
                _copy_row(session, f"system_schema.{schema}", row)
        session.execute(f"DROP TABLE {EMULATION}.{table}")


def _copy_row(session: Session, table: str, row: dict[str, Any]) -> None:
    moved = dict(row, keyspace_name="system_distributed")
    if "id" in moved:
        moved["id"] = uuid.uuid4()
    moved = {name: value for name, value in moved.items() if value is not None}
    names = ", ".join(moved)
    statement = session.prepare(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(moved))})")
    session.execute(statement, tuple(moved.values()))


def dressed_folder(streams: Streams) -> Path:
    """Where the dressed data folder of this version lies in the cache, or would."""
    made_of = [*load_manifest().roots["cassandra"], str(_FORM), streams, *_OWN_TABLES.values(), *_DISTRIBUTED.values()]
    return cache_dir() / "scylla-emulation" / f"{streams}-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}"


def dressed_data(target: Path, streams: Streams = "v2", say: Say = drop_line) -> None:
    """Fill the data folder of a node that never ran with a dressed one. Blocks: milliseconds, once per machine 15 s.

    Safe to use from several processes at once.

    Raises:
        StackError: Cassandra could not be started.
        ValueError: There is no such kind of streams.
    """
    if streams not in get_args(Streams):
        raise ValueError(f"'{streams}' is no kind of stream descriptions; there are: {', '.join(get_args(Streams))}")
    source = dressed_folder(streams)
    if not source.is_dir():
        source.parent.mkdir(parents=True, exist_ok=True)
        with source.with_suffix(".lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not source.is_dir():
                with progress("dressing a Cassandra as the Scylla emulation (once)", say):
                    _make_dressed(source, streams)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target)


def _make_dressed(final: Path, streams: Streams) -> None:
    with tempfile.TemporaryDirectory(prefix=".part-", dir=final.parent) as temporary:
        folder = Path(temporary)
        with CassandraNode(folder, port=None, cdc=False, jvm_options=FAST_START) as node:
            cluster, session = connect_session(node.address)
            with cluster:
                dress_cassandra(session, streams)
            # The start after which the tables are live would make their folders; doing it here finds mistakes early.
            node.stop()
            node.start()
            cluster, session = connect_session(node.address)
            with cluster:
                for table in _OF[streams]:
                    session.execute(f"SELECT * FROM system_distributed.{table} LIMIT 1")
            node.stop()
        # A drained node has nothing left in its commit log; the segments are large.
        for name in ("commitlog", "hints", "saved_caches", "cdc_raw"):
            shutil.rmtree(node.data / name, ignore_errors=True)
        node.data.rename(final)
