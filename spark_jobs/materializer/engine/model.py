"""The merge engine's data: its options, the columns of a table, and a change as all input formats give it.

The exact semantics are in docs/jobs/MERGE.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from connectors.cql.types import CqlType
    from connectors.schema import Schema

InputFormat = Literal["partition-update", "debezium", "ums"]
InputEncoding = Literal["json", "avro"]
OutputFormat = Literal["debezium", "ums", "yelp"]
OutputEncoding = Literal["json", "json-schemas", "avro"]

#: Cassandra's default of ``gc_grace_seconds``.
DEFAULT_GRACE_S: Final = 864_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """The engine's options. Picklable and hashable: they travel to Spark's tasks, and compiled parts are cached by them.

    Attributes:
        topic: the output topic; names the schemas' subjects.
        name: of the job; ``source.name`` of events and the beginning of the names of their schemas.
        input_format: what the input topic has.
        input_encoding: of its values. ``json`` takes messages with their schema (``{"schema", "payload"}``), and others when
            ``input_schemas`` has theirs.
        input_schemas: schemas (Avro, or Connect's JSON form) as strings, for JSON messages without schema.
        registry: properties of AvroConverter (``schema.registry.url`` ...) for whatever side is Avro, as pairs.
        key_columns: names of the primary key's columns; needed for UMS, whose messages don't say it, and for Debezium events
            whose Kafka key is not a struct.
        output_format: form of the events.
        output_encoding: of keys and values; ``json-schemas`` writes the schema into each.
        emit_unchanged: also an UPDATE where an update is news for the state, but changes nothing that can be seen.
        tombstones_on_delete: a null value after each DELETE.
        grace_s: how long (s) a tombstone is kept, from its local deletion time or its arrival, whichever is later.
        masks: the properties that begin with ``mask.``: events are masked by them.
        shards: ``sink.shards``.
    """

    topic: str
    name: str
    input_format: InputFormat = "partition-update"
    input_encoding: InputEncoding = "avro"
    input_schemas: tuple[str, ...] = ()
    registry: tuple[tuple[str, str], ...] = ()
    key_columns: tuple[str, ...] = ()
    output_format: OutputFormat = "debezium"
    output_encoding: OutputEncoding = "avro"
    emit_unchanged: bool = False
    tombstones_on_delete: bool = True
    grace_s: int = DEFAULT_GRACE_S
    masks: tuple[tuple[str, str], ...] = ()
    shards: Literal["refuse", "separate", "merge"] = "refuse"


class StateColumn(NamedTuple):
    """One column of one version of a table.

    Attributes:
        name: as the table has it.
        field: its name in messages.
        kind: its part in the table.
        type: its CQL type; None where the input says nothing of CQL.
        schema: of its values in output; the optional form for all but the primary key. None: not known (plain JSON).
        reversed: clustering order is DESC.
    """

    name: str
    field: str
    kind: Literal["partition_key", "clustering", "static", "regular"]
    type: CqlType | None
    schema: Schema | None
    reversed: bool = False


class EventOrigin(NamedTuple):
    """The origin of a change, as events report it.

    Attributes:
        write_time: µs since 1970.
        snapshot: read from the table, not from a log.
        offset: of the message in the input topic; None for what time brought about.
        cause: ``write`` or ``expiry``.
    """

    write_time: int
    snapshot: bool
    offset: int | None
    cause: str


class PublishLatency:
    """Publish latencies (write time to now, ms) since they were taken last: a value for a metric."""

    __slots__ = ("count", "largest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.largest = 0

    def take(self) -> tuple[int, int, int]:
        """Return number, sum and maximum (ms), and reset them."""
        totals = self.count, self.total, self.largest
        self.count = self.total = self.largest = 0
        return totals


def state_key_parts(key: bytes) -> tuple[bytes, int, bytes]:
    """Partition key, kind and clustering part of a key of the store; see ``keys``."""
    end = 2 + int.from_bytes(key[:2], "big")
    return key[2:end], key[end], key[end + 1 :]


#: Anything that an input format decodes a value to.
Value = Any
