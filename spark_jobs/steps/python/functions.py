"""Functions of users in the SQL of steps: declared per job, registered in its session, rows for which they fail found.

A registered function gives a struct: its value, or the error. The SQL of a step raises the error where the step calls the
function, so that a row for which it fails is treated like one for which a function of Spark's fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import sqlglot
from sqlglot import exp

from connectors.errors import ConfigInvalid, Fatal
from connectors.options import ConfigKey, ConfigProblem, ConfigType
from spark_jobs.config.keys import FUNCTION_PREFIX, FUNCTIONS
from spark_jobs.steps.lookup.values import is_type, make_converter, spark_type
from spark_jobs.steps.planning.dialect import StepSql, function_name, text_of
from spark_jobs.steps.python.code import FILE, FILE_KEY, FUNCTION, FUNCTION_KEY, kind_of, return_annotation, user_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from connectors.options import Config
    from spark_jobs.steps.planning.model import Branch, Expression, OutputTable
    from spark_jobs.steps.python.code import UserCode

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}\Z")
#: Begins the name of a registered function.
_REGISTERED: Final = "millrace_udf_"
_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function that SQL may call.

    Attributes:
        name: in SQL.
        code: what is called, with one argument per argument in SQL.
        kind: the type of its result (``lookup.values``); empty: its return annotation says it.
    """

    name: str
    code: UserCode
    kind: str = ""


def _list_function_names(raw: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in raw.get(FUNCTIONS, "").split(",") if name.strip()]


def keys_of(raw: Mapping[str, str]) -> list[ConfigKey]:
    """The options of the functions of a configuration, under their full names."""
    keys = []
    for name in dict.fromkeys(_list_function_names(raw)):
        prefix = f"{FUNCTION_PREFIX}{name}."
        keys += [
            replace(FILE_KEY, name=f"{prefix}{FILE}"),
            replace(FUNCTION_KEY, name=f"{prefix}{FUNCTION}", default=name),
            ConfigKey(
                name=f"{prefix}type",
                type=ConfigType.STRING,
                default=None,
                validator=lambda option, value: (
                    None
                    if value is None or is_type(re.sub(r"\s", "", value.lower()))
                    else f"Invalid value {value} for configuration {option}: use a type of lookups, such as bigint or string"
                ),
                example="string",
                doc="The type of the result. Not set: the return annotation of the function.",
            ),
        ]
    return keys


def check_functions(config: Config) -> list[ConfigProblem]:
    """Return the complaints about the functions of a job. Reads their files, runs nothing."""
    problems = []
    for name in _list_function_names(config.raw):
        if _NAME.match(name) is None:
            problem = f"Invalid value {name} for configuration {FUNCTIONS}: a name is letters, digits and '_'"
            problems.append(ConfigProblem(FUNCTIONS, problem))
            continue
        prefix = f"{FUNCTION_PREFIX}{name}."
        try:
            user_code(config[f"{prefix}{FILE}"], config[f"{prefix}{FUNCTION}"])
        except ConfigInvalid as error:
            option = f"{prefix}{str(error).partition(':')[0]}"
            problems.append(ConfigProblem(option, f"{prefix}{error}"))
    return problems


def functions_of(config: Config) -> list[UserFunction]:
    """The functions of a checked job. Reads their files."""
    result = []
    for name in _list_function_names(config.raw):
        prefix = f"{FUNCTION_PREFIX}{name}."
        code = user_code(config[f"{prefix}{FILE}"], config[f"{prefix}{FUNCTION}"])
        kind = re.sub(r"\s", "", (config[f"{prefix}type"] or "").lower())
        result.append(UserFunction(name, code, kind))
    return result


def register_functions(spark: SparkSession, functions: Sequence[UserFunction]) -> None:
    """Register functions in a session. Runs their modules.

    Raises:
        Fatal: a module fails, or the type of a result is not known.
    """
    from pyspark.sql import types as t

    for function in functions:
        kind = function.kind or kind_of(return_annotation(function.code.load()))
        if kind is None:
            raise Fatal(
                f"{FUNCTION_PREFIX}{function.name}.type is not set, and {function.code.where} has no return annotation that "
                "says it: annotate it with bool, int, float, str, bytes, date, datetime or Decimal, or set the type"
            )
        fields = [t.StructField("value", spark_type(kind)), t.StructField("error", t.StringType())]
        spark.udf.register(
            _REGISTERED + function.name.lower(), make_row_caller(function.code, kind), t.StructType(fields)
        )


def make_row_caller(code: UserCode, kind: str) -> Callable[..., tuple[Any, str | None]]:
    """Return the function that Spark calls with the arguments of one row: it gives the value, or the error. Picklable."""

    def call(*arguments: Any) -> tuple[Any, str | None]:
        function = code.load()
        try:
            return make_converter(kind)(function(*arguments)), None
        except Exception as error:  # noqa: BLE001 - whatever it is: the row is bad
            return None, f"{code.where}: {type(error).__name__}: {str(error)[:_SHOWN]}"

    return call


def with_functions(output: OutputTable, functions: frozenset[str]) -> OutputTable:
    """The plan with calls of users' functions as Spark can run them. Pure.

    Args:
        output: the plan.
        functions: their names in lower case.
    """
    if not functions:
        return output

    def expression(part: Expression) -> Expression:
        return replace(part, sql=rewrite_calls(part.sql, functions))

    def with_calls(branch: Branch) -> Branch:
        return replace(
            branch,
            columns=tuple(expression(part) for part in branch.columns),
            conditions=tuple(expression(part) for part in branch.conditions),
        )

    return replace(output, branches=tuple(with_calls(branch) for branch in output.branches))


def rewrite_calls(sql: str, functions: frozenset[str]) -> str:
    """An expression in which calls of ``functions`` raise the function's error or give its value. Pure."""
    if not any(name in sql.lower() for name in functions):
        return sql
    root = exp.Paren(this=sqlglot.parse_one(sql, dialect=StepSql))
    calls = [call for call in root.find_all(exp.Anonymous) if function_name(call) in functions]
    for call in reversed(calls):  # the inner ones first
        registered = exp.Anonymous(this=_REGISTERED + function_name(call), expressions=call.expressions)
        call_sql = text_of(registered)
        call.replace(
            sqlglot.parse_one(
                f"if({call_sql}.error IS NULL, {call_sql}.value, raise_error({call_sql}.error))", dialect=StepSql
            )
        )
    return text_of(root.this)
