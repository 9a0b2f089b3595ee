"""Templates of the Kafka sink for keys and headers of rows: parts of the table's name, the operation and columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from connectors import topic_names
from connectors.errors import Fatal
from connectors.options import invalid
from spark_jobs.steps.planning.names import qualified_name, table_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
#: Characters in names of topics that Kafka does not take.
NOT_IN_TOPICS: Final = r"[^A-Za-z0-9._-]"
_COLUMN: Final = "column:"
_NAMED: Final = ("topic", "namespace", "database", "table", "op")


def is_column(placeholder: str) -> bool:
    """Whether a placeholder is the value of a column. Pure."""
    return placeholder.startswith(_COLUMN) and placeholder != _COLUMN


def names_of_table(namespace: str) -> dict[str, str]:
    """The parts of a table's name by placeholder. Pure."""
    return {
        "namespace": namespace,
        "database": qualified_name(namespace).rpartition(".")[0],
        "table": table_part(namespace),
    }


def text_template(name: str, value: Any) -> str | None:
    """The complaint about the template of a key or a header; None where it is right. Pure."""
    for placeholder in PLACEHOLDER.findall(value or ""):
        if placeholder not in _NAMED and not is_column(placeholder):
            return invalid(
                name,
                value,
                f"${{{placeholder}}} is no placeholder; there are ${{topic}}, ${{namespace}}, ${{database}}, ${{table}}, "
                "${op} and ${column:<name>}",
            )
    return None


def text_column(option: str, template: str, namespace: str, columns: Mapping[str, Column]) -> Column:
    """The text of ``template`` per row, in UTF-8 (binary); null where a column that it names is null.

    Args:
        option: the option's name, for errors.
        template: as ``text_template`` takes it.
        namespace: the table's.
        columns: the table's columns by name.

    Raises:
        Fatal: the table has no such column.
    """
    from pyspark.sql import functions as f

    names = names_of_table(namespace)
    parts: list[Column] = []
    for number, part in enumerate(PLACEHOLDER.split(template)):
        if number % 2 == 0:
            parts.append(f.lit(part))
        elif part == "topic":
            parts.append(f.col("kafka_topic_"))
        elif part == "op":
            parts.append(f.col("ums_op_"))
        elif part in names:
            parts.append(f.lit(names[part]))
        else:
            parts.append(column_of(option, part.removeprefix(_COLUMN), namespace, columns).cast("string"))
    return f.concat(*parts).cast("binary")


def topic_column(option: str, template: str, namespace: str, columns: Mapping[str, Column]) -> Column | None:
    """The topic of each row where ``template`` names columns, with ``_`` for characters that a topic can't have; else None.

    Args: as ``text_column``.
    """
    from pyspark.sql import functions as f

    if not any(map(is_column, PLACEHOLDER.findall(template))):
        return None
    topic = text_column(option, template, namespace, columns).cast("string")
    return f.substring(f.regexp_replace(topic, NOT_IN_TOPICS, "_"), 1, topic_names.LONGEST)


def column_of(option: str, name: str, namespace: str, columns: Mapping[str, Column]) -> Column:
    """The column called ``name``.

    Raises:
        Fatal: the table has none.
    """
    if name not in columns:
        raise Fatal(f"{option}: table {namespace} has no column {name}; it has {', '.join(columns)}")
    return columns[name]
