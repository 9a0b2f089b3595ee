"""``debezium`` compared with Debezium's own records of the same mutations: equal except for the named differences."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pytest

from connectors.cassandra.events import build_events
from connectors.cassandra.events.contract import Where
from connectors.cql.mutations.definition import parse_definition
from connectors.cql.mutations.reference import read_update
from connectors.errors import Skippable
from connectors.formats.partition_update import UpdateSource
from tests.support.settings import cassandra_events
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connectors.api import SourceRecord

RECORDING: Final = json.loads((Path(__file__).parent / "recordings" / "debezium.json").read_text(encoding="utf-8"))
PARTS: Final = {part["prefix"]: part for part in RECORDING["parts"]}
_ABSENT: Final = "(absent)"
_CONVERTER: Final = JsonConverter({"schemas.enable": "true"})


class Leaf(NamedTuple):
    """A place at which two records differ: the columns or fields that lead there, and what is there in ours and in theirs."""

    table: str
    op: str | None
    path: tuple[str, ...]
    ours: Any
    theirs: Any


def _wholly(ours: Any, theirs: Any) -> bool:
    return isinstance(ours, str) and isinstance(theirs, str) and base64.b64decode(ours) in base64.b64decode(theirs)


#: What is meant to differ, see TYPES.md; each has to be found.
VALUES: Final[dict[str, Callable[[Leaf], bool]]] = {
    "a blob in a key or collection is followed by whatever lies beside it": lambda leaf: (
        leaf.path[-1] in {"k_blob", "value", "k", "0", "1"}
        and {"k_blob", "fm", "flb"} & set(leaf.path) != set()
        and _wholly(leaf.ours, leaf.theirs)
    ),
    "elements that were removed from a set are in it": lambda leaf: (
        leaf.path[-2:] == ("s_text", "value") and set(leaf.ours) < set(leaf.theirs)
    ),
    "maps whose keys are structs or arrays": lambda leaf: (
        leaf.path[1:2] in {("mk",), ("ml",)} and leaf.theirs == [leaf.ours["key"], leaf.ours["value"]]
    ),
    "a deleted partition has the time of what was written in the same batch": lambda leaf: (
        leaf.op == "d" and leaf.path[-1] in {"ts_us", "ts_ns"} and leaf.ours < leaf.theirs
    ),
    "values of bounds are not in the order of the key": lambda leaf: (
        leaf.path[-1] == "values"
        and leaf.ours != leaf.theirs
        and sorted(leaf.ours, key=str) == sorted(leaf.theirs, key=str)
    ),
}
SEQUENCES: Final[dict[str, Callable[[list[str | None], list[str | None]], bool]]] = {
    "a row deleted and written in one batch is only deleted": lambda ours, theirs: (
        ours == ["d", None, "i"] and theirs == ["d", None]
    ),
    "rows and deleted ranges of a batch are in the order of the key": lambda ours, theirs: (
        ours == ["r", "i", "i"] and theirs == ["i", "r", "i"]
    ),
    "a varint beyond 64 bits is cut off": lambda ours, theirs: ours == [] and theirs == ["i"],
}
SCHEMAS: Final[dict[str, Callable[[Leaf], bool]]] = {
    "cells have one name": lambda leaf: (
        leaf.theirs == "cell_value" and leaf.ours.endswith(f".{leaf.path[-2]}.cell_value")
    ),
    "tuples are named by their types": lambda leaf: (
        leaf.path[-1] == "name" and leaf.theirs.endswith("Tuple") and leaf.ours.endswith(f".{leaf.theirs}")
    ),
    "maps whose keys are structs or arrays are maps": lambda leaf: (
        leaf.path[0] in {"mk", "ml"} and leaf.path[1] in {"type", "items", "keys", "values"}
    ),
    "precise numbers are never null": lambda leaf: (
        leaf.table == "numsp" and leaf.path[-1] == "optional" and leaf.ours is True and leaf.theirs is False
    ),
}


def differences(ours: Any, theirs: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """The leaves that differ. What is null in ``after`` may be absent."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours | theirs:
            yield from differences(ours.get(name, _ABSENT), theirs.get(name, _ABSENT), (*path, name))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs) and path[-1:] != ("values",):
        for index, (our_item, their_item) in enumerate(zip(ours, theirs, strict=True)):
            name = our_item["field"] if isinstance(our_item, dict) and "field" in our_item else str(index)
            yield from differences(our_item, their_item, (*path, name))
    elif type(ours) is not type(theirs) or ours != theirs:
        yield path, ours, theirs


def explained(names: dict[str, Callable[[Leaf], bool]], leaves: list[Leaf]) -> set[str]:
    """The names of the differences, each of which has one."""
    used = set()
    for leaf in leaves:
        name = next((name for name, meets in names.items() if meets(leaf)), None)
        assert name is not None, leaf
        used.add(name)
    return used


def plain(record: SourceRecord) -> list[Any]:
    """A record as it is recorded: table, key, value; without what is null in ``after``, and when it was read."""
    key = _CONVERTER.encoder(record.topic, record.key_schema)(record.key)
    assert key is not None
    value = None
    if record.value is not None:
        data = _CONVERTER.encoder(record.topic, record.value_schema)(record.value)
        assert data is not None
        value = json.loads(data)["payload"]
        assert value.pop("ts_ms") >= 0
        assert value["source"].pop("version")
        value["after"] = {name: cell for name, cell in value["after"].items() if cell is not None}
    return [record.topic.rpartition(".")[2], json.loads(key)["payload"], value]


def make_records(part: dict[str, Any], *, extended: bool = False) -> list[list[Any]]:
    """Our connector's records of a part's mutations."""
    settings = cassandra_events(
        topic_prefix=part["prefix"],
        cluster="millrace",
        output_format="debezium",
        extended=extended,
        **{"tombstones": True, **part["options"]},
    )
    events = {
        name: build_events(parse_definition(json.dumps(text)), part["version"], settings)
        for name, text in part["definitions"].items()
    }
    records: list[SourceRecord] = []
    for table, position, text in part["updates"]:
        data = bytes.fromhex(text)
        if part.get("snapshot"):
            source = UpdateSource(
                connector="cassandra", cluster="c", keyspace=part["prefix"], table=table, snapshot=True
            )
            update, _ = read_update(
                data, 0, parse_definition(json.dumps(part["definitions"][table])), part["version"], source
            )
            events[table].add_snapshot_rows(
                msgspec.structs.replace(update, source=msgspec.structs.replace(source, read_time=position)),
                {},
                {},
                records,
            )
            continue
        where = Where(partition={}, node="n", segment=part["segment"], version=part["version"], position=position)
        try:
            assert events[table].update(data, 0, None, where, records) == len(data)
        except Skippable as error:
            assert "does not fit into 64 bits" in str(error)  # noqa: PT017 - one of the differences
    return [plain(record) for record in records]


def theirs_of(part: dict[str, Any]) -> list[list[Any]]:
    """Debezium's records of a part's mutations; fields that are equal in all ``source`` blocks are recorded once."""
    return [
        [table, key, None if value is None else {**value, "source": {**part["source"], **value["source"]}}]
        for table, key, value in part["records"]
    ]


def group_by_position(records: list[list[Any]]) -> dict[tuple[str, Any], list[list[Any]]]:
    """Records by table and position of the mutation, those read from the table by key; a tombstone is where its deletion is."""
    groups: dict[tuple[str, Any], list[list[Any]]] = defaultdict(list)
    position: Any = None
    for table, key, value in records:
        if value is not None:
            position = value["source"]["pos"]
            if position < 0:
                position = json.dumps(key)
                # Of what was read from the table: when.
                for name in ("ts_ms", "ts_us", "ts_ns"):
                    value["source"].pop(name, None)
        groups[table, position].append([table, key, value])
    return groups


@pytest.fixture(scope="module")
def beside() -> dict[str, tuple[set[str], list[Leaf]]]:
    """Of each part: the differences between sequences of records, and those between records."""
    compared = {}
    for prefix, part in PARTS.items():
        ours, theirs = group_by_position(make_records(part)), group_by_position(theirs_of(part))
        assert ours.keys() <= theirs.keys()
        sequences, leaves = set(), []
        for position in theirs:
            mine, other = ours[position], theirs[position]
            ops = [[None if value is None else value["op"] for _, _, value in records] for records in (mine, other)]
            if ops[0] != ops[1]:
                sequences |= {name for name, meets in SEQUENCES.items() if meets(*ops)} or {f"{position}: {ops}"}
                # Those that both have, paired by what they are.
                mine = [
                    record for op in dict.fromkeys(ops[1]) for record in mine if (record[2] and record[2]["op"]) == op
                ]
                other = [
                    record for op in dict.fromkeys(ops[1]) for record in other if (record[2] and record[2]["op"]) == op
                ]
            for our_record, their_record in zip(mine, other, strict=ops[0] == ops[1]):
                op = our_record[2] and our_record[2]["op"]
                leaves += [
                    Leaf(position[0], op, path, *pair)
                    for path, *pair in (
                        *differences(our_record[1], their_record[1], ("key",)),
                        *differences(our_record[2], their_record[2]),
                    )
                ]
        compared[prefix] = (sequences, leaves)
    return compared


def test_the_records_differ_in_what_is_named_and_in_nothing_else(
    beside: dict[str, tuple[set[str], list[Leaf]]],
) -> None:
    assert explained(VALUES, [leaf for _, leaves in beside.values() for leaf in leaves]) == VALUES.keys()
    assert {name for sequences, _ in beside.values() for name in sequences} == SEQUENCES.keys()
    assert sum(len(part["records"]) for part in PARTS.values()) > 100


def test_the_schemas_differ_in_what_is_named_and_in_nothing_else() -> None:
    leaves: list[Leaf] = []
    for part in PARTS.values():
        settings = cassandra_events(
            topic_prefix=part["prefix"], cluster="millrace", output_format="debezium", extended=False, **part["options"]
        )
        for table, recorded in part["schemas"].items():
            schemas = build_events(parse_definition(json.dumps(part["definitions"][table])), 7, settings).schemas  # type: ignore[attr-defined]
            after = schemas.value.field("after").schema
            key, value = (shown(schema) for schema in (schemas.key, schemas.value))
            assert [field.name for field in after.fields] == recorded["columns"]
            cells = next(field for field in value["fields"] if field["field"] == "after").pop("fields")
            for path, ours, theirs in (
                *differences(key, recorded["key"]),
                *differences(
                    {field["field"]: field["fields"][0] for field in cells if field["field"][0] != "_"},
                    recorded["values"],
                ),
                *(differences(value, recorded["envelope"]) if "envelope" in recorded else ()),
                *(
                    differences({field["field"]: field for field in cells}, recorded["cells"])
                    if "cells" in recorded
                    else ()
                ),
            ):
                leaves.append(Leaf(table, None, path, ours, theirs))
    assert explained(SCHEMAS, leaves) == SCHEMAS.keys()


def shown(schema: Any) -> Any:
    """A schema as JSON has it."""
    data = _CONVERTER.encoder("t", schema)(_EMPTY[schema.name.rpartition(".")[2]](schema))
    assert data is not None
    return json.loads(data)["schema"]


_EMPTY: Final[dict[str, Callable[[Any], Any]]] = {
    "Key": lambda schema: {field.name: None for field in schema.fields},
    "Envelope": lambda _: {
        "ts_ms": 0,
        "op": "i",
        "after": {},
        "source": {
            "version": "",
            "connector": "",
            "name": "",
            "ts_ms": 0,
            "snapshot": "false",
            "db": "",
            "cluster": "",
            "file": "",
            "pos": 0,
            "keyspace": "",
            "table": "",
        },
    },
}


def test_the_extended_form_says_more_and_nothing_else() -> None:
    """A reader of Debezium's form loses only nulls for removed elements, which have fields of their own."""
    for part in PARTS.values():
        static = {name for name, text in part["definitions"].items() if parse_definition(json.dumps(text)).static}
        more = [
            record
            for record in make_records(part, extended=True)
            if not (
                record[0] in static
                and record[2] is not None
                and record[2]["op"] == "u"
                and record[1].get("c", "") is None
            )
        ]
        letter = make_records(part)
        assert [record[:2] for record in more] == [record[:2] for record in letter]
        for (table, _, extended_value), (_, _, plain_value) in zip(more, letter, strict=True):
            for path, _, theirs in differences(extended_value, plain_value):
                gone = (
                    path[0] == "after"
                    and path[2:3] == ("value",)
                    and (None in theirs if isinstance(theirs, list) else theirs is None or theirs == _ABSENT)
                )
                static_too = extended_value["op"] == "d" and table in static
                assert path[-1] in {"mode", "removed", "deletion_ts"} or gone or static_too, (path, theirs)
