"""Targets of what sources send: binlog, rows and statements of MySQL, commit log and values of Cassandra and Scylla."""

from __future__ import annotations

import functools
import json
import struct
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.cassandra.log.segment import Segment
from connectors.cql import marshal, schemas
from connectors.cql import types as cql_types
from connectors.cql.mutations import compiled, definition, reference
from connectors.cql.values import make_decoder
from connectors.mysql.model import ColumnPlan
from connectors.mysql.rows import geometry, json_binary
from connectors.mysql.rows.decode import compile_rows
from connectors.mysql.schema import table_map
from connectors.mysql.schema.fields import field_schema
from connectors.mysql.source import binlog_events, gtid, payload, statements
from connectors.mysql.source import event_types as codes
from connectors.mysql.source.packets import Framer
from tests.fuzz.engine import Target
from tests.support.commitlog import COMPRESSIONS, segment
from tests.support.settings import mysql_values
from tests.unit.connectors.cql.mutation_world import SOURCE
from tests.unit.connectors.mysql import synthetic

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.cql.types import CqlType

_HEADER: Final = binlog_events.HEADER_SIZE
_RECORDED: Final = Path(__file__).parents[1] / "unit/connectors/cql/recorded_mutations.json"

_EVENTS: Final[dict[int, Callable[[bytes], object]]] = {
    codes.ROTATE: binlog_events.read_rotate,
    codes.QUERY: lambda event: (binlog_events.read_query(event), binlog_events.begin_thread(event)),
    codes.GTID: binlog_events.read_gtid,
    codes.ANONYMOUS_GTID: binlog_events.read_gtid,
    codes.GTID_TAGGED: binlog_events.read_gtid,
    codes.MARIADB_GTID: binlog_events.read_gtid,
    codes.ROWS_QUERY: binlog_events.rows_query,
    codes.ANNOTATE_ROWS: binlog_events.rows_query,
    codes.INCIDENT: binlog_events.describe_incident,
    codes.HEARTBEAT: binlog_events.read_heartbeat,
    codes.HEARTBEAT_V2: binlog_events.read_heartbeat,
    codes.TABLE_MAP: lambda event: (binlog_events.table_id(event), table_map.parse_table_map(event[_HEADER:])),
    codes.TRANSACTION_PAYLOAD: lambda event: len(list(payload.transaction_payload(event))),
    **dict.fromkeys(codes.ROWS, binlog_events.rows_header),
    **dict.fromkeys(codes.COMPRESSED, binlog_events.uncompress_event),
}


def _read_event(data: bytes) -> int:
    # The reader of packets lets no shorter one through.
    event = data.ljust(_HEADER, b"\0")
    binlog_events.read_header(event)
    read = _EVENTS.get(event[4])
    if read is not None:
        read(event)
    return event[4]


def _event(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 1_700_000_000, kind, 1, _HEADER + len(body), 5000, 0) + body


def _events() -> list[bytes]:
    rows = [(1, 2, b"abc"), (2, None, b"")]
    packed = zlib.compress(b"SELECT 1")
    log = synthetic.Log()
    log.transaction(7, [1, 2])
    log.anonymous()
    log.mariadb(5, flags=0x42)
    tagged = b"\2\x01\x01\x06" + bytes(range(20)) + b"\x04\x03tag\x06"
    return [
        *(event for _, event in log.events),
        synthetic.rotate("b.000008", 4),
        synthetic.description(0),
        *(_event(kind, bytes(40)) for kind in sorted(_EVENTS)),
        *(_event(kind, synthetic.rows_body(rows, 90)) for kind in sorted(codes.ROWS)),
        _event(codes.TABLE_MAP, synthetic.table_map("t", 90)),
        _event(codes.HEARTBEAT_V2, b"\x01\x08b.000007\x02\x02\xfc\x00\x10\0"),
        _event(codes.GTID_LIST, struct.pack("<IIIQ", 1, 0, 1, 77)),
        _event(codes.XA_PREPARE, struct.pack("<BIII", 0, 1, 3, 3) + b"abcdef"),
        _event(codes.GTID_TAGGED, tagged),
        _event(codes.QUERY_COMPRESSED, synthetic.query("", "shop") + b"\x81\x08" + packed),
        _event(codes.WRITE_ROWS_COMPRESSED_V1, synthetic.rows_body(rows, 90)[:12] + b"\x81\x08" + packed),
        _event(codes.TRANSACTION_PAYLOAD, synthetic.payload((codes.XID, bytes(8)), (codes.QUERY, b"x" * 20))),
        _event(codes.TRANSACTION_PAYLOAD, synthetic.payload((codes.XID, bytes(8)), compressed=True)),
    ]


def _read_packets(data: bytes) -> int:
    buffer = Framer(size=1 << 12)
    count = 0
    for start in range(0, len(data), 1000):
        part = data[start : start + 1000]
        while part:
            room = buffer.room()
            size = min(len(room), len(part))
            room[:size] = part[:size]
            buffer.filled(size)
            part = part[size:]
        count += len(buffer.events())
    return count


def _packets() -> list[bytes]:
    parts = []
    for checksums in (False, True):
        data = b""
        for number, event in enumerate([synthetic.rotate("b.000007", 4), *_events()[:6]], 1):
            body = b"\0" + event + (struct.pack("<I", zlib.crc32(event)) if checksums else b"")
            data += struct.pack("<I", len(body) | number << 24) + body
        parts.append(data)
    return [*parts, b"\x0b\0\0\1\xff\x10\x04#HY000bad", b"\1\0\0\1\xfe", b"\5\0\0\1\xfe\0\0\2\0"]


def _read_rows(data: bytes) -> int:
    """A TABLE_MAP with a length of two bytes before it, then the rows of its table."""
    size = int.from_bytes(data[:2], "big")
    mapped = table_map.parse_table_map(data[2 : 2 + size])
    if len(mapped.columns) > 64:
        return -1
    table = table_map.complete_table(mapped, None)
    options = mysql_values()
    plans = [ColumnPlan(column, field_schema(column, options)) for column in table.columns]
    event = data[2 + size :]
    bitmap = b"\xff" * ((len(table.columns) + 7) // 8)
    compile_rows(table, plans, options, kind="write", present=bitmap)(event, 0, len(event))
    return len(plans)


#: Type and its bytes of metadata in a TABLE_MAP, and a value of it.
_COLUMNS: Final = (
    (1, b"", b"\1"),
    (3, b"", b"\1\0\0\0"),
    (4, b"\4", b"\0\0\x80\x3f"),
    (8, b"", bytes(8)),
    (15, b"\x28\0", b"\3abc"),
    (246, b"\x0a\x02", b"\x80\0\0\1\x10"),
    (245, b"\4", b"\x0c\0\0\0\0\1\0\x0c\0\x0b\0\1\0\5\1\0a"),
    (252, b"\2", b"\2\0ab"),
    (255, b"\4", b"\x19\0\0\0\0\0\0\0\1\1\0\0\0" + bytes(16)),
    (17, b"\3", b"\x65\0\0\0\1\1"),
    (18, b"\6", b"\x99\xb0\0\0\0\0\0\1"),
    (19, b"\2", b"\x80\x10\0\1"),
    (254, b"\xf7\1", b"\1"),
    (16, b"\1\1", b"\1\xff"),
    (10, b"", b"\x21\xcf\x0f"),
    (13, b"", b"\x7b"),
)


def _rows() -> list[bytes]:
    inputs = []
    for part in (_COLUMNS, *((column,) for column in _COLUMNS)):
        metas = b"".join(meta for _, meta, _ in part)
        names = b"".join(b"\2c" + bytes([97 + number]) for number, _ in enumerate(part))
        head = (90).to_bytes(6, "little") + b"\x01\0\x04shop\0\x01t\0" + bytes([len(part)])
        head += bytes(kind for kind, _, _ in part) + bytes([len(metas)]) + metas + b"\xff" * ((len(part) + 7) // 8)
        head += b"\x04" + bytes([len(names)]) + names
        row = bytes((len(part) + 7) // 8) + b"".join(value for _, _, value in part)
        inputs.append(len(head).to_bytes(2, "big") + head + row * 2)
    return inputs


def _read_statement(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return statements.classify_statement(text, "shop").kind


def _read_gtids(data: bytes) -> int:
    flavor = "mariadb" if data[:1] == b"m" else "mysql"
    if data[:1] == b"b":
        return len(gtid.MySqlGtids.decode(data[1:]).text())
    return len(gtid.parse_gtids(flavor, data[1:].decode("utf-8", "replace")).text())


def _gtids() -> list[bytes]:
    text = f"{synthetic.UUID}:1-5:7,{synthetic.UUID}:tag:3-4".encode()
    return [b"x" + text, b"m0-1-5,1-2-7", b"b" + gtid.MySqlGtids.parse(text.decode()).encoded(), b"b" + bytes(8)]


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="millrace-fuzz-"))
    return folder / "CommitLog-7-1700000000123.log"


def _read_segment(data: bytes) -> int:
    path = _folder()
    path.write_bytes(data)
    log = Segment(path, 1_700_000_000_123)
    entries = 0
    try:
        for _ in range(10_000):
            chunk = log.read(None, complete=True, max_bytes=1 << 20)
            if chunk is None:
                return entries
            entries += len(chunk.entries)
            if chunk.problem:
                log.skip()
        raise AssertionError("reading a segment does not end")
    finally:
        log.close()


def _segments() -> list[bytes]:
    mutations = [[b"one", b"second"], [], [b"x" * 100, b"y"]]
    return [
        segment(mutations, version=version, compression=compression).data
        for version in (7, 9)
        for compression in COMPRESSIONS
    ]


@functools.cache
def _tables() -> list[tuple[definition.CqlTableDefinition, int, bytes]]:
    """Definition, version of the log, and bytes of every recorded update."""
    recorded: dict[str, Any] = json.loads(_RECORDED.read_text(encoding="utf-8"))
    return [
        (definition.parse_definition(json.dumps(recorded[version][name])), int(version), bytes.fromhex(data))
        for version in recorded
        for case in recorded[version]["cases"]
        for name, _, data in case["updates"]
    ]


def _read_mutation(data: bytes) -> str:
    """The first byte chooses the table."""
    tables = _tables()
    table, version, _ = tables[(data[0] if data else 0) % len(tables)]
    update = data[1:]
    decoders = _decoders(table, version)
    decoders.plain(update, 0)
    skipped = reference.skip_update(update, 0, table, version)
    end = decoders.full(update, 0, SOURCE)[1]
    return "same" if skipped == end else "differ"


@functools.cache
def _decoders(table: definition.CqlTableDefinition, version: int) -> compiled.CompiledDecoder:
    return compiled.CompiledDecoder(table, version)


def _mutations() -> list[bytes]:
    return [bytes([number]) + data for number, (_, _, data) in enumerate(_tables())]


_TYPES: Final = tuple(
    cql_types.parse_type(text)
    for text in (
        *sorted(cql_types.NATIVE),
        "list<int>",
        "set<text>",
        "map<text, int>",
        "tuple<int, text, list<int>>",
        "vector<float, 3>",
        "vector<text, 2>",
        "frozen<map<uuid, frozen<list<decimal>>>>",
    )
)


def _read_value(data: bytes) -> str:
    """The first byte chooses the type."""
    kind = _TYPES[(data[0] if data else 0) % len(_TYPES)]
    value = make_decoder(kind)(data[1:])
    return kind.name if value is not None else "none"


def _values() -> list[bytes]:
    bodies = (
        b"",
        b"\0\0\0\1",
        bytes(8),
        b"\0\0\0\2\0\0\0\4\0\0\0\1\0\0\0\1a",
        b"\0\0\0\1\0\0\0\1a\0\0\0\4\0\0\0\1",
        bytes(16),
    )
    return [bytes([number]) + body for number in range(len(_TYPES)) for body in bodies]


def _resolve(name: str) -> CqlType | None:
    return cql_types.parse_type("int") if name == "mine" else None


def _read_type(data: bytes) -> str:
    """CQL's text, the name of a Java class, or a type in the metadata of an answer; the first byte says which."""
    kind = data[0] % 3 if data else 0
    if kind == 2:
        rest = memoryview(data)[1:]
        position = 0

        def take(size: int) -> bytes:
            nonlocal position
            part = bytes(rest[position : position + size])
            position += size
            return part

        parsed = marshal.read_type(take)
    else:
        text = data[1:].decode("utf-8", "replace")
        parsed = marshal.parse_class(text) if kind else cql_types.parse_type(text, _resolve, keyspace="ks")
    if parsed.name != "custom":
        make_decoder(parsed)
        schemas.connect_schema(parsed, name_prefix="p.")
    return parsed.name


def _type_inputs() -> list[bytes]:
    classes = (
        b"MapType(org.apache.cassandra.db.marshal.UTF8Type,org.apache.cassandra.db.marshal.Int32Type)",
        b"org.apache.cassandra.db.marshal.UserType(ks,6d696e65,61:org.apache.cassandra.db.marshal.UTF8Type)",
        b"org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)",
        b"org.apache.cassandra.db.marshal.ReversedType(org.apache.cassandra.db.marshal.TimestampType)",
    )
    names = (
        b"frozen<map<text, list<int>>>",
        b'tuple<int, "Mine">',
        b"vector<float, 3>",
        b"'org.example.Custom'",
        b"mine",
    )
    metadata = (
        b"\0\x09",
        b"\0\x21\0\x0d\0\x20\0\x09",
        b"\0\x31\0\2\0\x09\0\x0d",
        b"\0\x30\0\2ks\0\1t\0\1\0\1f\0\x09",
        b"\0\0\0\1x",
    )
    return [bytes([kind]) + text for kind, group in enumerate((names, classes, metadata)) for text in group]


_DOCUMENTS: Final = (
    b"\x00\x01\x00\x0c\x00\x0b\x00\x01\x00\x05\x01\x00a",
    b"\x02\x02\x00\x10\x00\x05\x01\x00\x0c\x0a\x00\x03abc\0\0\0",
    b"\x04\x01",
    b"\x0c\x03abc",
    b"\x0f\xf6\x04\x03\x01\x80\x01",
    b"\x0f\x0c\x08\0\0\0\0\0\xb2\xa1\x19",
    b"\x0b" + struct.pack("<d", 1.5),
)

_DDL: Final = (
    b"CREATE TABLE shop.t (id INT PRIMARY KEY, `a b` VARCHAR(10) DEFAULT 'x;\\'y') /* c */",
    b"ALTER TABLE `t` ADD COLUMN c INT, RENAME TO shop.u -- end",
    b"RENAME TABLE a TO b, c.d TO e.f",
    b"DROP TABLE IF EXISTS a, `b`.c /*!40005 CASCADE */",
    b"/*!50003 CREATE*/ /*!50017 DEFINER=`root`@`%`*/ /*!50003 TRIGGER t BEFORE INSERT ON a FOR EACH ROW BEGIN END*/",
    b"TRUNCATE t",
    b"INSERT INTO t SELECT * FROM u",
    b"SAVEPOINT `s`",
    b"# x\nXA START 'a','b',1",
)
_DDL_WORDS: Final = (
    b"/*",
    b"*/",
    b"/*!",
    b"--",
    b"`",
    b"'",
    b'"',
    b".",
    b",",
    b"TABLE ",
    b"IF EXISTS ",
    b" TO ",
    b"\\",
    b"\n",
    b";",
)

TARGETS: Final = (
    Target("mysql-binlog", _read_event, _events, quick=8000),
    Target("mysql-packets", _read_packets, _packets, quick=8000),
    Target("mysql-rows", _read_rows, _rows, (table_map.Mismatch,), quick=300),
    Target(
        "mysql-json",
        lambda data: json_binary.json_text(data) and 1,
        lambda: list(_DOCUMENTS),
        (ValueError,),
        quick=15_000,
    ),
    Target(
        "mysql-geometry",
        lambda data: (geometry.read_geometry(data), geometry.read_point(data)),
        lambda: [bytes(4) + b"\1\1\0\0\0" + bytes(16), bytes(25)],
        (ValueError,),
        quick=15_000,
    ),
    Target("mysql-ddl", _read_statement, lambda: list(_DDL), words=_DDL_WORDS, quick=8000),
    Target("mysql-gtid", _read_gtids, _gtids, words=(b":", b"-", b",", synthetic.UUID.encode()), quick=8000),
    Target("cassandra-commitlog", _read_segment, _segments, quick=700),
    # What ``connectors.cassandra.stream`` takes for a damaged mutation.
    Target("cassandra-mutations", _read_mutation, _mutations, (IndexError, ValueError, OverflowError), quick=4000),
    Target("cql-values", _read_value, _values, (ValueError, struct.error), quick=15_000),
    Target(
        "cql-types", _read_type, _type_inputs, words=(b"<", b">", b"(", b")", b",", b"frozen<", b"list<"), quick=5000
    ),
)
