"""Names of target tables: from Java's format for them and the topics to templates of ours, and to steps. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.model import ENVELOPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spark_jobs.java_sinks.model import Answer, Request

TOPIC: Final = "${topic}"
TABLE: Final = "sink.jdbc.table"
SCHEMA: Final = "sink.jdbc.schema"
_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True, slots=True)
class Naming:
    """How a Java sink names tables.

    Attributes:
        option: of the format.
        clean: a topic as it is in the name of a table.
        flat: the format ``${topic}`` as a template of ours, where rows are flat, so that the topic is the table.
        inside: the same for ``${topic}`` inside of a longer format.
        source: placeholders for parts of Debezium's ``source`` -> ours.
        fixed: tables that are named for single topics.
    """

    option: str
    clean: Callable[[str], str]
    flat: str
    inside: str
    source: Mapping[str, str]
    fixed: Mapping[str, str]


def translate_names(request: Request, naming: Naming, answer: Answer) -> None:
    """Set the templates for tables, and the steps that rename tables where a template can't."""
    if TABLE in request.config:
        return  # the user has decided
    pattern = request.text(naming.option)
    envelopes = request.form == ENVELOPE
    placeholders = {TOPIC, *(naming.source if envelopes else ())}
    unknown = [part for part in _PLACEHOLDER.findall(pattern) if part not in placeholders]
    if unknown:
        answer.refuse(
            naming.option,
            f"{unknown[0]} has no counterpart: set {TABLE} in this configuration, with ${{table}}, ${{database}} and "
            "${namespace}",
        )
        return
    if TOPIC not in pattern:
        _put(_replaced(pattern, naming.source), naming.option, answer)
        return
    if not (envelopes or request.renames_topics or naming.fixed):
        topic = naming.flat if pattern == TOPIC else naming.inside
        if pattern == TOPIC or topic != "${table}" or not any("." in name for name in request.topics):
            _put(pattern.replace(TOPIC, topic), naming.option, answer)
            return
    if not request.topics:
        answer.refuse(
            naming.option,
            f"tables can't be named by topics that only a pattern names: name them in topics, or set {TABLE} in this "
            "configuration (for instance ${table}, the last part of the table's name)",
        )
        return
    if len(_PLACEHOLDER.findall(pattern)) > 1:
        answer.refuse(naming.option, f"{TOPIC} can't be combined with other placeholders: set {TABLE}")
        return
    _name_topics(request, naming, pattern, answer)


def _name_topics(request: Request, naming: Naming, pattern: str, answer: Answer) -> None:
    """A table for each topic."""
    tables: dict[str, list[str]] = {}
    for topic in request.topics:
        table = naming.fixed.get(topic) or pattern.replace(TOPIC, naming.clean(request.routed(topic)))
        tables.setdefault(table, []).append(topic)
    if len(tables) == 1:
        _put(next(iter(tables)), naming.option, answer)
        if len(request.topics) > 1:
            answer.put("sink.jdbc.table.shared", "true", "transforms")
        return
    _put("${database}.${table}" if any("." in table for table in tables) else "${table}", naming.option, answer)
    for number, (table, topics) in enumerate(tables.items()):
        names = ",".join(_table_of(topic, request.form) for topic in topics)
        kind, target = ("route", "to") if len(topics) == 1 else ("union", "output")
        answer.add_step(f"table_{number}", kind, {"tables": names, target: table}, naming.option)
    if request.form == ENVELOPE:
        answer.note(
            naming.option,
            "tables are distinguished by the source's database (or schema) and table, which are taken for the last two parts "
            "of the topics' names. Where topics are named otherwise, name the tables by steps of type route",
        )


def _table_of(topic: str, form: str) -> str:
    """The name of a topic's table in steps."""
    return ".".join(topic.split(".")[-2:]) if form == ENVELOPE else topic


def _replaced(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[0], match[0]), text)


def _put(name: str, origin: str, answer: Answer) -> None:
    """Set the template: what is before the last dot is the schema."""
    schema, _, table = name.rpartition(".")
    answer.put(TABLE, table, origin)
    if schema:
        answer.put(SCHEMA, schema.rpartition(".")[2], origin)
