"""Names of target tables: from Java's format for them and the topics to templates of ours, and to steps. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_jobs.java_sinks.translation.model import ENVELOPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

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
        table: the option with the template.
        schema: the option for what is before the last dot of a name; empty where the whole name is the table's.
        shared: the option that lets several topics be one table; empty where they may be.
        suffix: what follows the name in the template.
        pattern: the format of a sink without an option for it.
    """

    option: str
    clean: Callable[[str], str]
    flat: str
    inside: str
    source: Mapping[str, str]
    fixed: Mapping[str, str]
    table: str = TABLE
    schema: str = SCHEMA
    shared: str = "sink.jdbc.table.shared"
    suffix: str = ""
    pattern: str = ""


def translate_names(request: TranslationRequest, naming: Naming, answer: TranslatedJob) -> None:
    """Set the templates for tables, and the steps that rename tables where a template can't."""
    if naming.table in request.config:
        return  # the user has decided
    pattern = naming.pattern or request.text(naming.option)
    envelopes = request.form == ENVELOPE
    placeholders = {TOPIC, *(naming.source if envelopes else ())}
    unknown = [part for part in _PLACEHOLDER.findall(pattern) if part not in placeholders]
    if unknown:
        answer.refuse(
            naming.option,
            f"{unknown[0]} has no counterpart: set {naming.table} in this configuration, with ${{table}}, ${{database}} and "
            "${namespace}",
        )
        return
    if TOPIC not in pattern:
        _put_templates(_fill_placeholders(pattern, naming.source), naming, answer)
        if len(request.topics) != 1 and naming.shared and not _PLACEHOLDER.search(pattern):
            answer.put(naming.shared, "true", naming.option)
        return
    if not (envelopes or request.renames_topics or naming.fixed):
        topic = naming.flat if pattern == TOPIC else naming.inside
        if pattern == TOPIC or topic != "${table}" or not any("." in name for name in request.topics):
            _put_templates(pattern.replace(TOPIC, topic), naming, answer)
            return
    if not request.topics:
        answer.refuse(
            naming.option,
            f"tables can't be named by topics that only a pattern names: name them in topics, or set {naming.table} in this "
            "configuration (for instance ${table}, the last part of the table's name)",
        )
        return
    if len(_PLACEHOLDER.findall(pattern)) > 1:
        answer.refuse(naming.option, f"{TOPIC} can't be combined with other placeholders: set {naming.table}")
        return
    _name_topics(request, naming, pattern, answer)


def _name_topics(request: TranslationRequest, naming: Naming, pattern: str, answer: TranslatedJob) -> None:
    """A table for each topic."""
    tables: dict[str, list[str]] = {}
    for topic in request.topics:
        table = naming.fixed.get(topic) or pattern.replace(TOPIC, naming.clean(request.routed(topic)))
        tables.setdefault(table, []).append(topic)
    if len(tables) == 1:
        _put_templates(next(iter(tables)), naming, answer)
        if len(request.topics) > 1 and naming.shared:
            answer.put(naming.shared, "true", "transforms")
        return
    whole = "${database}.${table}" if any("." in table for table in tables) else "${table}"
    _put_templates(whole if naming.schema else "${namespace}", naming, answer)
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


def _fill_placeholders(name_format: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[0], match[0]), name_format)


def _put_templates(name: str, naming: Naming, answer: TranslatedJob) -> None:
    """Set the templates."""
    schema, _, table = name.rpartition(".") if naming.schema else ("", "", name)
    answer.put(naming.table, f"{table}{naming.suffix}", naming.option)
    if schema:
        answer.put(naming.schema, schema.rpartition(".")[2], naming.option)
