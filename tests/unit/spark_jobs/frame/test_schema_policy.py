"""Tables that change: each policy and each kind of change. No Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from connectors.errors import Fatal
from connectors.job_api import JobProgress
from spark_jobs.config import job_files as config
from spark_jobs.config.schema_options import KINDS, NEW_TABLE, POLICIES, SchemaPolicies
from spark_jobs.contract import Column, SchemaRefused, TableChanges, TableSchema
from spark_jobs.reports.progress import EventWriter, describe_event
from spark_jobs.rows.schema_policy import SinkTableState, resolve_changes
from spark_jobs.rows.schema_watch import SchemaWatch
from spark_jobs.spark.checkpoint import LocalFolder
from worker.control.herder.progress import shown_progress

if TYPE_CHECKING:
    from pathlib import Path

INT, LONG, TEXT = t.IntegerType(), t.LongType(), t.StringType()
ID = Column("id", INT, nullable=False, key=True)


def table(*columns: Column, name: str = "d.shop") -> TableSchema:
    return TableSchema(name, (ID, *columns))


def policies(default: str = "evolve", **kinds: str) -> SchemaPolicies:
    return SchemaPolicies.of(
        {
            "sink.schema.changes": default,
            **{f"sink.schema.{kind.replace('_', '.')}": policy for kind, policy in kinds.items()},
        }
    )


def shape(policy: str, old: Column | None, new: Column | None, *, refused: bool = False) -> Any:
    """Resolve one changed column: (name, type, how), and the effect that is reported."""
    before, after = (table(*([column] if column else [])) for column in (old, new or old))
    lacking = frozenset({old.name}) if old is not None and new is None else frozenset()
    result = resolve_changes(SinkTableState(before), after, lacking, policies(policy), refused=refused)
    (change,) = result.changes
    targets = [(item.column.name, item.column.type.simpleString(), item.value.value) for item in result.targets[1:]]
    return targets, change.effect


def test_new_columns() -> None:
    new = Column("c", INT)
    added = ([("c", "int", "same")], "added")
    assert [shape(policy, None, new) for policy in ("evolve", "try_evolve", "lenient")] == [added] * 3
    assert shape("ignore", None, new) == shape("try_evolve", None, new, refused=True) == ([], "left out")


def test_dropped_columns_stay() -> None:
    stays = ([("c", "int", "same")], "stays, and is null in new rows")
    for policy in ("evolve", "try_evolve", "lenient", "ignore"):
        assert shape(policy, Column("c", INT), None) == stays


@pytest.mark.parametrize(
    "new", [Column("c", LONG), Column("c", TEXT), Column("c", INT, meaning="time")], ids=["wider", "text", "meaning"]
)
def test_changed_types(new: Column) -> None:
    old = Column("c", INT)
    follows = ([("c", new.type.simpleString(), "same")], "the column gets the new type")
    null = ([("c", "int", "fitting")], "values that don't fit are null")
    text = "values that don't fit are null, their text is in c_as_text"
    assert shape("evolve", old, new) == shape("try_evolve", old, new) == follows
    assert shape("ignore", old, new) == shape("try_evolve", old, new, refused=True) == null
    assert shape("lenient", old, new) == ([("c", "int", "fitting"), ("c_as_text", "string", "rest")], text)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (None, Column("c", INT), "new.column"),
        (Column("c", INT), None, "dropped.column"),
        (Column("c", TEXT, length=5), Column("c", TEXT, length=9), "wider.type"),
        (Column("c", INT), Column("c", TEXT), "incompatible.type"),
    ],
)
def test_fail_names_the_change_and_the_option(old: Column | None, new: Column | None, kind: str) -> None:
    with pytest.raises(Fatal, match=rf"table d\.shop: .*\bc\b.*sink\.schema\.{kind}"):
        shape("fail", old, new)
    shape("evolve", old, new)


def test_keys_are_never_null() -> None:
    longer = TableSchema("d.shop", (Column("id", LONG, nullable=False, key=True),))
    for policy in ("lenient", "ignore"):
        result = resolve_changes(SinkTableState(table()), longer, frozenset(), policies(policy))
        assert (result.asis, result.changes[0].policy) == (True, "evolve")
    with pytest.raises(Fatal, match="id was int and is bigint now"):
        resolve_changes(SinkTableState(table()), longer, frozenset(), policies("fail"))


def test_each_kind_has_its_own_policy_and_changes_are_reported_once() -> None:
    both = policies("ignore", new_column="evolve")
    before, after = table(Column("a", INT)), table(Column("a", LONG), Column("b", INT))
    first = resolve_changes(SinkTableState(before), after, frozenset(), both)
    assert [(item.column, item.policy) for item in first.changes] == [("a", "ignore"), ("b", "evolve")]
    repeated = resolve_changes(first.state, after, frozenset(), both)
    assert (repeated.changes, repeated.targets) == ((), first.targets)
    # The policy of a held column is changed with a restart: the sink follows, and that is reported.
    later = resolve_changes(first.state, after, frozenset(), policies("evolve"))
    assert (later.asis, [item.effect for item in later.changes]) == (True, ["the column gets the new type"])


def test_the_column_of_texts_has_a_name_of_its_own() -> None:
    old = table(Column("c", INT), Column("C_as_text", TEXT))
    new = table(Column("c", TEXT), Column("C_as_text", TEXT))
    result = resolve_changes(SinkTableState(old), new, frozenset(), policies("lenient"))
    assert [item.column.name for item in result.targets] == ["id", "c", "C_as_text", "c_as_text_2"]
    repeated = resolve_changes(result.state, new, frozenset(), policies("lenient"))
    assert [item.column.name for item in repeated.targets] == ["id", "c", "C_as_text", "c_as_text_2"]


def test_a_later_column_of_the_source_keeps_its_name() -> None:
    lenient = policies("lenient")
    first = resolve_changes(SinkTableState(table(Column("c", INT))), table(Column("c", TEXT)), frozenset(), lenient)
    assert [item.column.name for item in first.targets] == ["id", "c", "c_as_text"]
    later = table(Column("c", TEXT), Column("C_as_text", TEXT))
    result = resolve_changes(first.state, later, frozenset(), lenient)
    assert [item.column.name for item in result.targets] == ["id", "c", "C_as_text", "c_as_text_2"]


def test_rows_of_an_older_version_narrow_nothing() -> None:
    state = SinkTableState(table(Column("c", LONG)))
    result = resolve_changes(state, table(Column("c", INT)), frozenset(), policies("fail"))
    assert (result.changes, result.state.accepted) == ((), state.accepted)
    assert resolve_changes(result.state, table(Column("c", LONG)), frozenset(), policies("fail")).changes == ()


# From batch to batch.


def watch(folder: Path, chosen: SchemaPolicies, events: list[dict[str, Any]], *, tolerant: bool = False) -> SchemaWatch:
    return SchemaWatch(chosen, LocalFolder(folder), EventWriter("j", None, on_event=events.append), tolerant=tolerant)


def changes(schema: TableSchema) -> TableChanges:
    frame: Any = None  # it is not touched where the rows are as they came
    return TableChanges(schema, frame)


def test_a_change_is_an_event_once_its_batch_is_written_also_after_a_restart(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    follow = watch(tmp_path, policies(), events)
    follow.apply([changes(table())])
    follow.written(0)
    wider = [changes(table(Column("c", INT)))]
    follow.apply(wider)
    follow.apply(wider)  # the batch is retried
    assert events == []
    restarted = watch(tmp_path, policies(), events)
    restarted.apply(wider)
    restarted.written(1)
    assert [(event["event"], event["batch"], event["change"], event["column"], event["after"]) for event in events] == [
        ("schema_change", 1, "new.column", "c", "int")
    ]
    assert describe_event(events[0]) == "j: new.column: table d.shop, column c: added (policy evolve)"
    last = watch(tmp_path, policies(), events)
    last.apply(wider)
    last.written(2)
    assert len(events) == 1
    assert restarted.reported == 1


def test_new_tables(tmp_path: Path) -> None:
    first, other = changes(table()), changes(table(name="d.other"))
    for policy, aside in (("evolve", False), ("lenient", False), ("ignore", True)):
        events: list[dict[str, Any]] = []
        follow = watch(tmp_path / policy, policies(policy), events, tolerant=True)
        follow.apply([first])
        assert follow.refusal(first.schema) == ""  # the tables of the first batch are those that the flow was made for
        follow.written(0)
        for batch in (1, 2):
            follow.apply([first, other])
            assert bool(follow.refusal(other.schema)) == aside
            follow.written(batch)
        assert [(event["table"], event["change"], event["policy"]) for event in events] == [
            ("d.other", NEW_TABLE, policy)
        ]
    strict = watch(tmp_path / "evolve", policies("fail"), [])
    with pytest.raises(Fatal, match=r"table d\.third: the table is new.*sink\.schema\.new\.table"):
        strict.apply([changes(table(name="d.third"))])


def test_the_next_version_of_a_table_of_ums_is_no_new_table(tmp_path: Path) -> None:
    follow = watch(tmp_path, policies("fail"), [])
    for version in (1, 2):
        follow.apply([changes(table(name=f"mysql.db.shop.t.{version}.0.0"))])
        follow.written(version)


def test_what_a_target_refuses_is_ignored_with_try_evolve_only(tmp_path: Path) -> None:
    for policy, expected in (("evolve", False), ("lenient", False), ("try_evolve", True)):
        follow = watch(tmp_path / policy, policies(policy), [])
        follow.apply([changes(table())])
        follow.written(0)
        follow.apply([changes(table(Column("c", INT)))])
        refusal = SchemaRefused("no right to ALTER", "d.shop")
        assert follow.fall_back(refusal) == expected
        assert not follow.fall_back(refusal)  # the rest of the table is refused, too


# Options.


def test_options() -> None:
    base = {
        "name": "n",
        "kafka.bootstrap.servers": "b:1",
        "source.topics": "t",
        "source.format": "plain",
        "sink.type": "console",
    }

    def named(**more: str) -> list[str]:
        return [problem.name for problem in config.check_job(base | more)[1]]

    for policy in POLICIES:
        letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
        assert named(**letters, **{f"sink.schema.{kind}": policy for kind in KINDS}) == []
    assert named(**{"sink.schema.changes": "merge"}) == ["sink.schema.changes"]
    assert named(**{"sink.schema.changes": "ignore"}) == ["sink.schema.changes"]  # where would new tables go?
    assert named(**{"sink.schema.changes": "ignore", "sink.schema.new.table": "lenient"}) == []
    assert named(**{"sink.schema.changes": "fail", "sink.console.content": "records"}) == ["sink.schema.changes"]


def test_progress_shows_the_changes() -> None:
    shown = {"table": "d.shop", "change": "new.column"}
    assert shown_progress("w", JobProgress(schema_changes=[shown]))["schema_changes"] == [shown]
