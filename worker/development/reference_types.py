"""The reference of types: what each type of a source is in Connect's schema, in Avro, and in the targets of jobs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from connectors.schema import Schema

_MYSQL: Final = (
    "TINYINT",
    "SMALLINT",
    "SMALLINT UNSIGNED",
    "MEDIUMINT",
    "INT",
    "INT UNSIGNED",
    "BIGINT",
    "BIGINT UNSIGNED",
    "DECIMAL(20,4)",
    "FLOAT",
    "DOUBLE",
    "BIT(1)",
    "BIT(9)",
    "CHAR(10)",
    "VARCHAR(10)",
    "TEXT",
    "BINARY(4)",
    "VARBINARY(4)",
    "BLOB",
    "ENUM('a','b')",
    "SET('a','b')",
    "JSON",
    "YEAR",
    "DATE",
    "TIME(6)",
    "DATETIME(3)",
    "DATETIME(6)",
    "TIMESTAMP(6)",
    "UUID",
    "INET6",
    "GEOMETRY",
)
#: Rows with another option: the type and the option.
_MYSQL_OPTIONS: Final = (
    ("DECIMAL(20,4)", "decimal.handling.mode=string"),
    ("DECIMAL(20,4)", "decimal.handling.mode=double"),
    ("BIGINT UNSIGNED", "bigint.unsigned.handling.mode=precise"),
    ("DATE", "time.precision.mode=connect"),
    ("TIME(6)", "time.precision.mode=connect"),
    ("DATETIME(6)", "time.precision.mode=connect"),
    ("TIME(6)", "time.precision.mode=nanoseconds"),
    ("DATETIME(6)", "time.precision.mode=nanoseconds"),
    ("DATETIME(6)", "time.precision.mode=isostring"),
    ("BLOB", "binary.handling.mode=base64"),
)
_CQL: Final = (
    "ascii",
    "text",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "varint",
    "decimal",
    "float",
    "double",
    "blob",
    "uuid",
    "timeuuid",
    "inet",
    "date",
    "time",
    "timestamp",
    "duration",
    "list<int>",
    "set<uuid>",
    "map<text, decimal>",
    "tuple<int, text>",
)
#: Types for which the options on types change something.
_CQL_WITH_OPTIONS: Final = ("varint", "decimal", "uuid", "timeuuid", "time")
_CQL_OPTIONS: Final = "`decimal.handling.mode=precise`, `varint.handling.mode=precise`, `{option}`"
_INTRO: Final = """\
Each table has the type of the source, the schema of its values (Connect's type, then the logical name), the type in Avro
(AvroConverter), the type of Spark that a job's frames and Parquet files have, and the column types that the JDBC sink
makes. A column of `PostgreSQL` or `MariaDB` is that of a nullable column; a key of text or bytes is `varchar` or
`varbinary` in MariaDB. What the values look like: [types of jobs](../jobs/formats.md#types), and the pages of the
connectors. `D.` stands for `io.debezium.data.`, `T.` for `io.debezium.time.`, `C.` for `org.apache.kafka.connect.data.`.
"""
_NOT_READ: Final = """\
Jobs don't read these events, whose operations are `i`, `u`, `d` and `r`: give them partition updates and the
materializer. The columns of Spark and the databases say what the schemas become.
"""
_PACKAGES: Final = {
    "io.debezium.data.": "D.",
    "io.debezium.time.": "T.",
    "org.apache.kafka.connect.data.": "C.",
}
#: The options without a default; no server is asked.
_MYSQL_SOURCE: Final = {"database.hostname": "db", "database.user": "u", "topic.prefix": "p"}
_CASSANDRA_SOURCE: Final = {"cassandra.hosts": "n1", "cdc.raw.directories": "n1=/cdc_raw", "topic.prefix": "p"}
_HEAD: Final = "| type | schema | Avro | Spark, Parquet | PostgreSQL | MariaDB |\n|---|---|---|---|---|---|"
_TEXT: Final = frozenset({"char", "varchar", "text", "enum", "set", "json"})


def types_page(note: str) -> str:
    """The page.

    Args:
        note: the comment at its start.
    """
    parts = [f"# Types from the source to the target\n{note}\n{_INTRO}"]
    for head, rows in type_tables():
        parts += [*head, _types_table(rows)]
    return "\n".join(parts)


def type_tables() -> list[tuple[list[str], list[tuple[str, Schema]]]]:
    """The tables of the page: the lines before each, and the schema of each type."""
    from connectors.cassandra.config.settings import CONFIG, event_settings
    from connectors.cassandra.events.debezium_types import debezium_type
    from connectors.cql.debezium_names import ValueForms
    from connectors.cql.schemas import connect_schema
    from connectors.cql.types import parse_type
    from connectors.formats.cql_schema import typed_schema

    precise = {
        "decimal.handling.mode": "precise",
        "varint.handling.mode": "precise",
        "cassandra.logical.types": "named",
    }
    names = ValueForms("precise", "precise", logical=True)

    def updates(declaration: str) -> Schema:
        return typed_schema(parse_type(declaration), "c", optional=True)

    def cassandra(options: Mapping[str, str]) -> Callable[[str], Schema]:
        settings = event_settings(CONFIG.parse({**_CASSANDRA_SOURCE, **options}))
        return lambda text: debezium_type(parse_type(text), "c", settings).schema

    def scylla(chosen: ValueForms) -> Callable[[str], Schema]:
        return lambda text: connect_schema(parse_type(text), name_prefix="c.", names=chosen)

    def all_of(types: Iterable[str], schema: Callable[[str], Schema]) -> list[tuple[str, Schema]]:
        return [(declared, schema(declared)) for declared in types]

    default = "With the default options:\n"
    return [
        (
            ["## MySQL and MariaDB\n", "`output.format=debezium`. With the default options:\n"],
            [(declared, _mysql_schema(declared, {})) for declared in _MYSQL],
        ),
        (
            ["With others:\n"],
            [
                (f"{declared}, `{option}`", _mysql_schema(declared, dict([option.split("=")])))
                for declared, option in _MYSQL_OPTIONS
            ],
        ),
        (["## Cassandra and Scylla: partition updates and the materializer's events\n"], all_of(_CQL, updates)),
        (
            ["## Cassandra: Debezium's form\n", _NOT_READ, default],
            all_of(_CQL, cassandra({})),
        ),
        (
            [f"With {_CQL_OPTIONS.format(option='cassandra.logical.types=named')}:\n"],
            all_of(_CQL_WITH_OPTIONS, cassandra(precise)),
        ),
        (["## Scylla: the formats `legacy` and `advanced`\n", default], all_of(_CQL, scylla(ValueForms()))),
        (
            [f"With {_CQL_OPTIONS.format(option='scylla.logical.types=named')}:\n"],
            all_of(_CQL_WITH_OPTIONS, scylla(names)),
        ),
    ]


def _types_table(rows: Iterable[tuple[str, Schema]]) -> str:
    return "\n".join([_HEAD, *(f"| {' | '.join([name, *type_cells(schema)])} |" for name, schema in rows)]) + "\n"


def type_cells(schema: Schema) -> list[str]:
    """The schema, and its types in Avro, Spark, PostgreSQL and MariaDB, as the page has them."""
    from spark_jobs.contract import Column
    from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
    from spark_jobs.sources.types import length_of, meaning_of, spark_type

    column = Column("c", spark_type(schema), length=length_of(schema), meaning=meaning_of(schema))
    databases = [load_dialect(name).column_type(column, 255) for name in ("postgresql", "mariadb")]
    return [_schema_text(schema), _avro_text(schema), column.type.simpleString(), *databases]


def _mysql_schema(declared: str, options: Mapping[str, str]) -> Schema:
    """The schema of a column, by its declaration and the options that are set."""
    from connectors.mysql.config.settings import CONFIG, value_options
    from connectors.mysql.schema.catalog_types import column_from_catalog
    from connectors.mysql.schema.fields import field_schema

    base = re.split(r"[ (]", declared)[0].lower()
    numbers = [int(number) for number in re.findall(r"\d+", declared.partition("(")[2])] or [0]
    row: dict[str, Any] = {
        "COLUMN_NAME": "c",
        "COLUMN_TYPE": declared,
        "DATA_TYPE": base,
        "CHARACTER_SET_NAME": "utf8mb4" if base in _TEXT else None,
        "CHARACTER_OCTET_LENGTH": numbers[0] * (4 if base in _TEXT else 1),
        "NUMERIC_PRECISION": numbers[0],
        "NUMERIC_SCALE": numbers[-1],
        "DATETIME_PRECISION": numbers[0],
        "COLUMN_DEFAULT": None,
        "IS_NULLABLE": "YES",
        "EXTRA": "",
        "COLUMN_COMMENT": "",
    }
    settings = value_options(CONFIG.parse({**_MYSQL_SOURCE, **options}), "mariadb")
    return field_schema(column_from_catalog(row), settings)


def _schema_text(schema: Schema) -> str:
    name = f" {_shorten_name(schema.name)}" if schema.name and not schema.fields else ""
    if schema.name and schema.fields and schema.name.startswith("io.debezium."):
        name = f" {_shorten_name(schema.name)}"
    inner = [part for part in (schema.key_schema, schema.value_schema) if part is not None]
    inner += [field.schema for field in schema.fields]
    parts = f" ({', '.join(map(_schema_text, inner))})" if inner and not (schema.fields and name) else ""
    return f"{schema.type.value.upper()}{name}{parts}"


def _avro_text(schema: Schema) -> str:
    from worker.converters.avro_form.schema import AvroSettings, avro_text

    return avro_type(json.loads(avro_text(schema, AvroSettings())))


def avro_type(declared: Any) -> str:
    """An Avro type as the page writes it: without its attributes, of a union with null the other type."""
    if isinstance(declared, list):
        return ", ".join(avro_type(member) for member in declared if member != "null")
    if isinstance(declared, str):
        return declared
    if declared["type"] == "array":
        return f"array of {avro_type(declared['items'])}"
    if declared["type"] == "map":
        return f"map of {avro_type(declared['values'])}"
    if declared["type"] == "record":
        return f"record ({', '.join(avro_type(field['type']) for field in declared['fields'])})"
    logical = declared.get("logicalType")
    if logical == "decimal":
        logical = f"decimal({declared['precision']}, {declared.get('scale', 0)})"
    name = logical or (_shorten_name(declared["connect.name"]) if "connect.name" in declared else "")
    return f"{avro_type(declared['type'])}{f', {name}' if name else ''}"


def _shorten_name(name: str) -> str:
    for package, short in _PACKAGES.items():
        if name.startswith(package):
            return short + name.removeprefix(package)
    return name
