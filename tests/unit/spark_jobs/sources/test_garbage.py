"""Records that can't be decoded define nothing: with them in between, good records show the same tables and rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from connectors.errors import Skippable
from spark_jobs.contract import TableSchema
from spark_jobs.sources.records.inference import TableSighting
from spark_jobs.sources.records.kinds import RecordSample, Rules, choose_sample, look_json, loose_flat, loose_layout
from spark_jobs.sources.records.reader import DecodePlan
from spark_jobs.sources.records.rows import TableDecoder
from spark_jobs.sources.records.search import Search
from tests.unit.spark_jobs.sources.support import envelope_schema, member, message, records

Record = tuple[bytes | None, bytes]
RULES = Rules(before=True, keys={"d.known": ("id",)}, declared={"d.known": {"day": t.DateType()}})
KNOWN_TABLES = {"d.known": {"id": t.LongType(), "day": t.DateType(), "n": t.LongType()}}


def event(op: Any, table: str = "t", *, source: Any = None, **parts: Any) -> bytes:
    return json.dumps({"op": op, "source": source or {"db": "d", "table": table, "ts_us": 1}, **parts}).encode()


good_rows = st.fixed_dictionaries(
    {"id": st.integers(0, 9)},
    optional={"n": st.one_of(st.integers(), st.floats(-5, 5), st.none()), "s": st.text(max_size=3)},
)
good = st.one_of(
    good_rows.map(lambda row: (b'{"id":1}', event("c", after=row))),
    st.tuples(good_rows, good_rows).map(lambda two: (b'{"id":1}', event("u", before=two[0], after=two[1]))),
    st.integers(0, 9).map(lambda number: (json.dumps({"id": number}).encode(), event("d", before={"id": number}))),
    st.integers(0, 9).map(
        lambda number: (None, event("c", "known", after={"id": number, "day": "2026-01-02", "n": 1}))
    ),
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["id", "zz"]), inner, max_size=3)
    ),
    max_leaves=5,
)
row_of_garbage = st.dictionaries(st.sampled_from(["n", "s", "zz", "ZZ"]), anything, max_size=3)
garbage_values = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [b"nonsense", b"[1]", b"5", b"{}", b'{"op":"c"', b'{"schema":5,"payload":{}}', b"{" * 5000, b"null"]
    ),
    # No operation that exists.
    st.builds(lambda op, row: event(op, after=row), st.sampled_from(["z", "", "cc", 5, None, []]), row_of_garbage),
    st.builds(lambda row: json.dumps({"op": "z", "after": row}).encode(), row_of_garbage),
    # No row, or none after the change.
    st.builds(lambda row: event("c", after=row), st.one_of(st.integers(), st.text(), st.lists(anything, max_size=2))),
    st.builds(lambda row: event("c", after=None, before=row), row_of_garbage),
    st.builds(lambda row: event("d", before=row), st.one_of(st.integers(), st.text(), st.lists(anything, max_size=2))),
    # An invalid source.
    st.builds(
        lambda row, source: event("c", after=row, source=source),
        row_of_garbage,
        st.sampled_from([5, "x", [1], {"db": 5}, {"db": "d", "table": "t", "ts_us": "then"}]),
    ),
    # A row with values that its columns don't take.
    st.builds(lambda row: event("c", "known", after={"id": 1, **row, "day": "no day"}), row_of_garbage),
    st.builds(lambda row: event("c", after={"id": 1, **row, "ums_id_": 5}), row_of_garbage),
)
keyless_rows = st.builds(
    lambda table, row: event("c", table, after=row), st.sampled_from(["t", "known"]), row_of_garbage
)
no_key = st.sampled_from([None, b"", b"\xff", b"5", b"{"])
garbage = st.one_of(
    st.tuples(no_key | st.just(b'{"other":1}'), garbage_values),
    # A row without its key. With a key such as {"other":1} it would be one: the row need not repeat its record's key.
    st.tuples(no_key, keyless_rows),
)


def shown(several: list[Record]) -> tuple[dict[str, TableSighting], dict[str, list[Any]], list[int]]:
    """Tables, their rows, and the offsets of bad records, as a source finds them in one task."""
    batch = records([value for _, value in several], [key for key, _ in several])
    bad: list[int] = []
    unusable: set[bytes] = set()

    def report(*record: Any) -> None:
        bad.append(record[2])

    def search(rules: Rules, note: Any) -> dict[str, TableSighting]:
        table_search = Search(KNOWN_TABLES, rules, note)
        table_search.look(batch)
        sightings = [TableSighting.from_row(row) for row in table_search.result().to_pylist()]
        assert all(sighting.error for sighting in sightings if sighting.sample is not None)
        unusable.update(sighting.text for sighting in sightings if sighting.sample is not None)
        return {sighting.namespace: sighting for sighting in sightings if sighting.sample is None}

    tables, rules = search(RULES, report), RULES
    mixed = {name: table.keys for name, table in tables.items() if table.mixed and table.keys}
    if mixed:
        rules = replace(RULES, keys={**RULES.keys, **mixed})
        tables = search(rules, lambda *_: None)
    rows: dict[str, list[Any]] = {}
    for name, seen in tables.items():
        if seen.error:
            continue
        columns = seen.columns(rules.keys_of(name) or seen.keys, rules.declared_of(name))
        layout = loose_layout(columns, loose_flat(seen.types, rules), rules)
        plan = DecodePlan(
            TableSchema(name, columns), {b"": layout}, before=True, namespace=name, foreign=frozenset(unusable)
        )
        rows[name] = [row for part in TableDecoder(plan, report).decode(batch) for row in part.to_pylist()]
    return tables, rows, bad


#: The table that has no rules shows its key in one good record at least.
keyed = good_rows.map(lambda row: (b'{"id":1}', event("c", after=row)))


@given(
    st.tuples(st.lists(good, max_size=3), keyed, st.lists(good, max_size=3)).map(
        lambda parts: [*parts[0], parts[1], *parts[2]]
    ),
    st.lists(st.tuples(st.integers(0, 5), garbage), max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_garbage_between_good_records_changes_nothing(several: list[Record], between: list[tuple[int, Record]]) -> None:
    mixed: list[tuple[bool, Record]] = [(True, record) for record in several]
    for index, record in between:
        mixed.insert(index, (False, record))
    alone, with_garbage = shown(several), shown([record for _, record in mixed])
    # A table that was known before is looked through also where it has bad records only.
    defined = {
        name: sighting
        for name, sighting in with_garbage[0].items()
        if not sighting.error and (name in alone[0] or name not in KNOWN_TABLES)
    }
    assert {name: (sighting.types, sighting.keys) for name, sighting in defined.items()} == {
        name: (sighting.types, sighting.keys) for name, sighting in alone[0].items()
    }
    good_offsets = [offset for offset, (is_good, _) in enumerate(mixed) if is_good]
    for name, rows in with_garbage[1].items():
        assert [{**row, "kafka_offset_": 0, "ums_uid_": "", "ums_id_": 0} for row in rows] == [
            {**row, "kafka_offset_": 0, "ums_uid_": "", "ums_id_": 0} for row in alone[1].get(name, [])
        ]
        assert {row["kafka_offset_"] for row in rows} <= set(good_offsets)
    bad = with_garbage[2]
    assert alone[2] == []
    assert len(set(bad)) == len(bad), "a bad record is reported once"
    assert not set(bad) & set(good_offsets)


@pytest.mark.parametrize("after", [{}, {"n": 1}])
def test_a_key_column_that_the_row_lacks_comes_from_the_records_key(after: dict[str, Any]) -> None:
    """Debezium leaves out excluded columns of the row, but never of the key."""
    tables, rows, bad = shown([(b'{"other":1}', event("c", after=after)), (b'{"other":2}', event("c", after={"n": 2}))])
    assert bad == []
    assert tables["d.t"].keys == ("other",)
    assert [(row["other"], row["n"]) for row in rows["d.t"]] == [(1, after.get("n")), (2, 2)]


COLUMNS = [{"type": "int64", "optional": False, "field": "id"}, member("n", "int32")]
WITH_SCHEMA = envelope_schema(COLUMNS)
SOURCE = {"db": "d", "table": "t"}
GOOD: Record = (
    b'{"id":1}',
    message(WITH_SCHEMA, {"op": "c", "after": {"id": 1, "n": 2}, "before": None, "source": SOURCE}),
)


@pytest.mark.parametrize(
    "payload",
    [
        5,
        None,
        {},
        {"op": "z", "after": {"id": 1}},
        {"op": "c", "after": {"id": 1}, "source": 5},
        {"op": "c", "after": {"id": "x"}, "source": SOURCE},
        {"op": "c", "after": None, "source": SOURCE},
    ],
)
def test_a_bad_record_is_no_sample_of_its_schema(payload: Any) -> None:
    bad = (b'{"id":1}', message(WITH_SCHEMA, payload))
    cut = (GOOD[0], GOOD[1][:-4])
    rules = Rules()
    for value in (bad, cut):
        with pytest.raises(Skippable):
            look_json(records([value[1]], [value[0]]), rules)
    batch = records([bad[1], cut[1], GOOD[1], GOOD[1]], [bad[0], cut[0], None, GOOD[0]])
    sample = RecordSample()
    ranks = []
    for index in range(4):
        sample = choose_sample(sample, batch.slice(index, 1), rules, "")
        ranks.append(sample.rank)
    assert ranks == [0, 0, 2, 3]
    assert (sample.key, sample.value, look_json(batch.slice(3, 1), rules).namespace) == (*GOOD, "d.t")


def test_a_record_of_another_table_with_other_types_is_not_bad() -> None:
    several: list[Record] = [(None, event("c", "a", after={"n": 1})), (None, event("c", "b", after={"n": "text"}))]
    tables, rows, bad = shown(several)
    assert bad == []
    assert {name: [row["n"] for row in table_rows] for name, table_rows in rows.items()} == {
        "d.a": [1],
        "d.b": ["text"],
    }
    assert set(tables) == {"d.a", "d.b"}
