"""Queries of steps without Spark: what is refused, where columns come from, which columns are the key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from spark_jobs.contract import Column, TableSchema
from spark_jobs.steps.contract import Step, StepContext
from spark_jobs.steps.deduplicate import DeduplicateStep
from spark_jobs.steps.mask import MaskStep
from spark_jobs.steps.planning.model import OutputTable, StepRefused
from spark_jobs.steps.projection import SelectStep
from spark_jobs.steps.route import RouteStep
from spark_jobs.steps.row_filter import FilterStep
from spark_jobs.steps.sql import SqlStep
from spark_jobs.steps.union import UnionStep

if TYPE_CHECKING:
    from collections.abc import Mapping


def table(namespace: str, **columns: t.DataType) -> TableSchema:
    """A table whose key is ``id``."""
    return TableSchema(
        namespace,
        tuple(Column(name, kind, nullable=name != "id", key=name == "id") for name, kind in columns.items()),
    )


ORDERS = table("shop.orders", id=t.LongType(), name=t.StringType(), amount=t.IntegerType())
OLD = table("shop.old_orders", id=t.LongType(), name=t.StringType(), amount=t.IntegerType())
KEYLESS = TableSchema("logs", (Column("line", t.StringType()),))


def step(kind: type[Step], *, before_rows: bool = False, **options: Any) -> Step:
    values: Mapping[str, Any] = {
        key.name: options.get(key.name.replace(".", "_"), key.default) for key in kind.config_def.keys.values()
    }
    raw = {name.replace("__", "."): str(value) for name, value in options.items()}
    return kind(StepContext("s", values, raw, before_rows))


def planned(subject: Step, *tables: TableSchema) -> OutputTable:
    outputs = [item for item in subject.plan(tables or (ORDERS,)) if isinstance(item, OutputTable)]
    assert len(outputs) == 1
    return outputs[0]


@pytest.mark.parametrize(
    ("sql", "construct"),
    [
        ("SELECT o.id FROM orders o JOIN old_orders p ON o.id = p.id", "JOIN"),
        ("SELECT o.id FROM orders o, old_orders p", "JOIN"),
        ("SELECT name, count(*) AS n FROM orders GROUP BY name", "GROUP BY"),
        ("SELECT max(id) AS id FROM orders", "the aggregate max"),
        ("SELECT id, Collect_List(name) AS n FROM orders", "the aggregate collect_list"),
        ("SELECT DISTINCT id FROM orders", "DISTINCT"),
        ("SELECT id FROM orders LIMIT 3", "LIMIT"),
        ("SELECT id FROM orders ORDER BY id", "ORDER BY"),
        ("SELECT id, row_number() OVER (ORDER BY name) AS n FROM orders", "a window function"),
        ("SELECT id, explode(name) AS n FROM orders", "explode"),
        ("SELECT id FROM orders LATERAL VIEW explode(name) x AS y", "LATERAL VIEW"),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM old_orders)", "IN (SELECT ...)"),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM old_orders)", "EXISTS"),
        ("SELECT id, (SELECT 1 FROM old_orders) AS x FROM orders", "a scalar subquery"),
        ("SELECT id FROM orders UNION SELECT id FROM old_orders", "UNION"),
        ("SELECT id FROM orders EXCEPT SELECT id FROM old_orders", "EXCEPT"),
        ("WITH x AS (SELECT id, sum(amount) AS s FROM orders GROUP BY id) SELECT id FROM x", "GROUP BY"),
        ("CREATE TEMPORARY VIEW v AS SELECT DISTINCT id FROM orders; SELECT id FROM v", "DISTINCT"),
        ("INSERT INTO t SELECT id FROM orders TABLESAMPLE (5 ROWS)", "TABLESAMPLE"),
    ],
)
def test_constructs_that_cannot_carry_changes_are_refused_before_the_start(sql: str, construct: str) -> None:
    (complaint,) = step(SqlStep, sql=sql).check()
    assert complaint.startswith(f"sql: step s: {construct}"), complaint
    assert "Instead, " in complaint
    if construct.startswith(("JOIN", "GROUP BY", "the aggregate")):
        assert "use a step of type view" in complaint


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT FROM",
        "DROP TABLE x",
        "INSERT OVERWRITE t SELECT 1",
        "",
        "SELECT id FROM orders; SELECT id FROM old_orders",
        "CREATE TEMPORARY VIEW v AS SELECT id FROM orders",
    ],
)
def test_what_is_no_query_is_refused(sql: str) -> None:
    assert len(step(SqlStep, sql=sql).check()) == 1


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("amount > 0) UNION ALL SELECT * FROM (x", "not Spark SQL|takes expressions only|needs|takes"),
        ("sum(amount) > 3", "the aggregate sum"),
        ("amount >", "not Spark SQL"),
        ("id IN (SELECT id FROM old_orders)", "IN (SELECT"),
    ],
)
def test_conditions_that_are_refused(condition: str, message: str) -> None:
    (complaint,) = step(FilterStep, condition=condition).check()
    assert any(part in complaint for part in message.split("|")), complaint


def test_unstable_conditions_are_refused() -> None:
    with pytest.raises(StepRefused, match=r"rand\(\) in a condition"):
        planned(step(FilterStep, condition="rand() < 0.5"))
    with pytest.raises(StepRefused, match="current_timestamp"):
        planned(step(FilterStep, condition="ums_ts_ < current_timestamp"))


def test_a_filter_keeps_table_columns_and_key() -> None:
    output = planned(step(FilterStep, condition="amount > 1 AND orders.name LIKE 'a%' AND id <> 7"))
    assert (output.namespace, output.names, output.key) == ("shop.orders", ("id", "name", "amount"), 1)
    branch = output.branches[0]
    assert [part.sql for part in branch.row_conditions] == ["c2 > 1", "c1 LIKE 'a%'"]
    assert [part.sql for part in branch.key_conditions] == ["c0 <> 7"]


def test_tables_that_a_step_does_not_name_pass_unchanged() -> None:
    result = step(FilterStep, condition="amount > 1", tables=["shop.or*"]).plan([ORDERS, OLD])
    assert isinstance(result[0], OutputTable)
    assert result[1] is OLD


def test_nested_queries_come_down_to_one_list_of_expressions() -> None:
    sql = """
        CREATE TEMPORARY VIEW big AS SELECT *, amount * 2 AS twice FROM shop.orders WHERE amount > 10;
        WITH named AS (SELECT b.id AS order_id, upper(b.name) AS label, twice FROM big AS b WHERE twice < 100)
        SELECT label, order_id, twice + 1 AS more, label || '!' AS loud FROM named WHERE label <> 'X'
    """
    output = planned(step(SqlStep, sql=sql))
    assert (output.namespace, output.names, output.key) == ("s", ("order_id", "label", "more", "loud"), 1)
    branch = output.branches[0]
    assert [part.sql for part in branch.columns] == ["c0", "(upper(c1))", "(c2 * 2) + 1", "(upper(c1)) || '!'"]
    assert [part.sql for part in branch.conditions] == ["c2 > 10", "(c2 * 2) < 100", "(upper(c1)) <> 'X'"]
    assert [part.columns for part in branch.columns] == [("id",), ("name",), ("amount",), ("name",)]
    assert branch.columns[0].direct == "id"


def test_struct_fields_and_names_in_any_case() -> None:
    nested = table("a.t", id=t.LongType(), Place=t.StructType([t.StructField("City", t.StringType())]))
    output = planned(step(SqlStep, sql="SELECT ID, place.City AS city, T.Place.City AS again FROM t"), nested)
    assert [part.sql for part in output.branches[0].columns] == ["c0", "c1.`City`", "c1.`City`"]


def test_lambda_variables_are_no_columns() -> None:
    tags = table("a.t", id=t.LongType(), tags=t.ArrayType(t.StringType()))
    output = planned(step(SelectStep, columns="id, filter(tags, x -> x <> 'a') AS rest"), tags)
    assert output.branches[0].columns[1].sql == "filter(c1, x -> x <> 'a')"


def test_inputs_are_replaced_by_outputs_unless_they_are_kept() -> None:
    assert [item.namespace for item in step(SqlStep, sql="SELECT id FROM orders").plan([ORDERS, OLD])] == [
        "shop.old_orders",
        "s",
    ]
    kept = step(SqlStep, sql="INSERT INTO a.b SELECT id FROM orders", keep_inputs=True).plan([ORDERS, OLD])
    assert [item.namespace for item in kept] == ["shop.orders", "shop.old_orders", "a.b"]


def test_tables_that_were_not_seen_yet_are_left_out_of_a_union() -> None:
    subject = step(SqlStep, sql="SELECT id, name FROM orders UNION ALL SELECT id, name FROM old_orders")
    assert len(planned(subject, ORDERS, OLD).branches) == 2
    assert len(planned(subject, OLD).branches) == 1
    assert subject.plan([KEYLESS]) == [KEYLESS]
    assert subject.combines
    assert not step(SqlStep, sql="SELECT id FROM orders").combines


def test_the_first_select_of_a_union_names_the_columns() -> None:
    sql = "SELECT id, upper(name) AS label FROM orders UNION ALL SELECT id, lower(name) FROM old_orders"
    assert planned(step(SqlStep, sql=sql), ORDERS, OLD).names == ("id", "label")
    assert planned(step(SqlStep, sql=sql), OLD).names == ("id", "label")
    with pytest.raises(StepRefused, match="has not been seen yet: list the columns"):
        planned(step(SqlStep, sql="SELECT * FROM orders UNION ALL SELECT * FROM old_orders"), OLD)


def test_a_table_that_is_read_twice_is_refused() -> None:
    with pytest.raises(StepRefused, match=r"shop.orders is read twice.*CASE"):
        planned(step(SqlStep, sql="SELECT id FROM orders WHERE id > 1 UNION ALL SELECT id FROM orders WHERE id < 1"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("name", "column id is of the key of table shop.orders .* Add id, or name .* transform.step.s.key"),
        ("CAST(id AS string) AS id, name", "column id is of the key"),
        ("id, nme", "has no column nme; did you mean name[?]"),
        ("id, upper(name)", "has no name: write AS"),
        ("id, name AS ID", "two columns"),
        ("id, amount AS ums_op_", "system column"),
        ("* EXCEPT (nothing)", "no column nothing"),
        ("* EXCEPT (id)", "column id is of the key"),
    ],
)
def test_projections_that_are_refused(columns: str, message: str) -> None:
    with pytest.raises(StepRefused, match=f"(?s)step s: .*{message}"):
        planned(step(SelectStep, columns=columns))


def test_another_key() -> None:
    subject = planned(step(SelectStep, columns="CAST(id AS string) AS text, name", key=["text"]))
    assert (subject.names, subject.key, subject.movable) == (("text", "name"), 1, False)
    with pytest.raises(StepRefused, match="a delete may hold only the key"):
        planned(step(SelectStep, columns="*", key=["name"]))
    moved = planned(step(SelectStep, columns="*", key=["name"], before_rows=True))
    assert (moved.names, moved.key, moved.movable) == (("name", "id", "amount"), 1, True)
    with pytest.raises(StepRefused, match=r"uuid\(\)"):
        planned(step(SelectStep, columns="id, uuid() AS u", key=["u"], before_rows=True))
    with pytest.raises(StepRefused, match="not in its output"):
        planned(step(SelectStep, columns="*", key=["other"]))


def test_keys_of_a_union_must_agree() -> None:
    sql = "SELECT id, name FROM orders UNION ALL SELECT amount, id FROM old_orders"
    with pytest.raises(StepRefused, match="other keys"):
        planned(step(SqlStep, sql=sql), ORDERS, OLD)
    with pytest.raises(StepRefused, match="UNION ALL of 1 and 2 columns"):
        planned(step(SqlStep, sql="SELECT id FROM orders UNION ALL SELECT id, name FROM old_orders"), ORDERS, OLD)


def test_a_union_by_names() -> None:
    wide = table("shop.wide", id=t.LongType(), extra=t.StringType())
    output = planned(step(UnionStep, output="all", table_column="origin"), ORDERS, wide)
    assert (output.namespace, output.names, output.key) == ("all", ("origin", "id", "name", "amount", "extra"), 2)
    assert [part.sql for part in output.branches[1].columns] == ["'shop.wide'", "c0", "NULL", "NULL", "c1"]
    with pytest.raises(StepRefused, match="the tables have other keys"):
        planned(step(UnionStep, output="all"), ORDERS, KEYLESS)
    with pytest.raises(StepRefused, match="have a column name already"):
        planned(step(UnionStep, output="all", table_column="name"), ORDERS)


def test_routes() -> None:
    assert [item.namespace for item in step(RouteStep, to="${database}.new_${table}").plan([ORDERS])] == [
        "shop.new_orders"
    ]
    versioned = replace(ORDERS, namespace="mysql.s.shop.orders.7.0.0")
    assert [item.namespace for item in step(RouteStep, to="${namespace}_x").plan([versioned])] == [
        "mysql.s.shop.orders_x"
    ]
    routed = planned(step(RouteStep, to="${table}_${column:id}"))
    assert (routed.namespace, routed.key, routed.movable) == ("orders_${column:id}", 2, False)
    with pytest.raises(StepRefused, match=r"source\.before\.rows=true"):
        planned(step(RouteStep, to="${table}_${column:name}"))
    assert planned(step(RouteStep, to="${table}_${column:name}", before_rows=True)).movable
    with pytest.raises(StepRefused, match="no column region"):
        planned(step(RouteStep, to="${column:region}"))


def test_deduplication_needs_a_key() -> None:
    assert step(DeduplicateStep).plan([ORDERS]) == [ORDERS]
    with pytest.raises(StepRefused, match="logs has no key"):
        step(DeduplicateStep).plan([KEYLESS])


def test_masks_of_a_step() -> None:
    subject = step(MaskStep, rules=["m"], m__columns="shop.orders.amount", m__type="md5")
    subject.context.raw["rules"] = "m"  # type: ignore[index]  # a dict
    assert subject.check() == []
    (masked,) = subject.plan([ORDERS])
    assert isinstance(masked, TableSchema)
    assert [column.type for column in masked.columns] == [t.LongType(), t.StringType(), t.StringType()]
    wrong = step(MaskStep, rules=["m"], m__columns="a", m__type="nonsense")
    wrong.context.raw["rules"] = "m"  # type: ignore[index]  # a dict
    assert [text.partition(":")[0] for text in wrong.check()] == ["m.type"]


def test_two_tables_of_one_name_need_the_database() -> None:
    other = table("other.orders", id=t.LongType())
    with pytest.raises(StepRefused, match=r"orders may be each of the tables shop.orders, other.orders"):
        step(SqlStep, sql="SELECT id FROM orders").plan([ORDERS, other])
    assert planned(step(SqlStep, sql="SELECT id FROM other.orders"), ORDERS, other).branches[0].source is other
    ums = table("mysql.db.shop.orders.3.0.0", id=t.LongType())
    assert planned(step(SqlStep, sql="SELECT id FROM shop.orders"), ums).branches[0].source is ums
