"""Masks of jobs: the rules of ``connectors.formats.masks.masking`` on the rows of every source, before any sink sees them.

The frame masks what sources decode (``masked_frames``); the materializer masks the events that it writes
(``materializer.events.masked``). No Spark here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Fatal
from connectors.formats import ums
from connectors.formats.masks import masking
from connectors.formats.masks.masking import Mask, Masks, Target
from connectors.options import ConfigProblem
from spark_jobs.config.keys import MATERIALIZE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import Config
    from connectors.schema import Schema

_CONTENTS: Final = ("sink.console.content", "sink.kafka.content")


def rules_of(config: Config) -> Masks:
    """The rules of a job's configuration.

    Raises:
        ConfigInvalid: one is wrong.
    """
    return masking.parse_rules(config.raw, debezium=False)


def check_masks(raw: Mapping[str, str], values: Mapping[str, Any]) -> list[ConfigProblem]:
    """Return the problems of the rules, and of options that can't be combined with them. Pure.

    Args:
        raw: the job's properties, references resolved.
        values: the parsed options.
    """
    problems = [
        problem
        for problem in masking.find_problems(raw, debezium=False)
        if not masking.is_debezium_option(problem.name)
    ]
    if not masking.rule_names(raw):
        return problems
    if values["source.format"] == "partition-update" and values["transform.type"] != MATERIALIZE:
        problems.append(
            ConfigProblem(
                "source.format",
                "mask.rules can't mask source.format=partition-update, which gives whole "
                f"messages as text: set transform.type={MATERIALIZE}, or mask in the "
                "connector",
            )
        )
    problems += [
        ConfigProblem(
            name,
            f"{name}=records passes records on without a look at their columns, so mask.rules can't mask "
            f"them: set {name}=rows, or mask in the connector",
        )
        for name in _CONTENTS
        if values.get(name) == "records"
    ]
    return problems


def table_names(namespace: str) -> tuple[str, ...]:
    """The names that a rule may know a namespace by, the surest first: database and table of UMS's seven parts."""
    names = [namespace, namespace.partition(".")[2]]
    try:
        parsed_namespace = ums.Namespace.parse(namespace)
    except ValueError:
        pass
    else:
        names.insert(0, f"{parsed_namespace.database}.{parsed_namespace.table}")
    return tuple(name for name in names if name)


def column_masks(columns: Sequence[tuple[str, Schema, bool]], tables: Sequence[str], masks: Masks) -> dict[str, Mask]:
    """The masks of a table's columns by name.

    Args:
        columns: name, schema, whether it is of the key.
        tables: names of the table, the surest first; the first that a rule knows counts.
        masks: the rules.

    Raises:
        Fatal: a rule names a column that it can't mask.
    """
    names = tuple(name for name, _, _ in columns)
    masks_by_name: dict[str, Mask] = {}
    for name, schema, in_key in columns:
        for table in tables:
            try:
                mask = masks.for_column(Target(f"{table}.{name}", schema, in_key=in_key, fields=names))
            except ConfigInvalid as error:
                raise Fatal(str(error)) from error
            if mask is not None:
                masks_by_name[name] = mask
                break
    return masks_by_name
