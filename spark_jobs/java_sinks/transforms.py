"""``transforms`` of a sink connector: those that a job has a counterpart for, and which step replaces the others. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java, java_replacement
from spark_jobs.java_sinks.model import AS_IS, ENVELOPE, FLAT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spark_jobs.java_sinks.model import Answer, Request

#: What to use in place of a transform that is refused.
_INSTEAD: Final[Mapping[str, str]] = {
    "InsertField": "a step of type select: columns='*, kafka_topic_ AS topic'",
    "MaskField": "a step of type mask, or mask.rules",
    "TimestampConverter": "a step of type select with an expression of Spark SQL",
    "TimestampRouter": "a step of type route: to='${table}_${column:day}'",
    "Filter": "a step of type filter",
    "ExtractField": "a step of type select: columns='address.city AS city'",
    "Flatten": "a step of type select: columns='id, address.city AS address_city'",
    "HoistField": "a step of type select: columns='struct(*) AS value'",
    "ValueToKey": "source.key.columns",
    "SetSchemaMetadata": "a step of type select with CAST, or source.table.columns",
    "ByLogicalTableRouter": "a step of type union",
    "ContentBasedRouter": "a step of type route or filter",
    "ExtractChangedRecordState": "a step of type select",
    "TimezoneConverter": "a step of type select with from_utc_timestamp",
    "HeaderFrom": "nothing: jobs read no headers",
    "DropHeaders": "nothing: jobs read no headers; remove it",
    "InsertHeader": "nothing: jobs write no headers; remove it",
}
#: Kafka Connect's types of Cast -> Spark's.
_TYPES: Final = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
}
#: Options of ExtractNewRecordState that say nothing about the rows.
_HARMLESS: Final = {"type", "drop.tombstones", "delete.handling.mode", "delete.tombstone.handling.mode"}
_STEP: Final = "transform.steps"


def translate_transforms(request: Request, answer: Answer) -> None:
    """Turn each transform into steps, routes or the form of the records."""
    for alias in request.items("transforms"):
        prefix = f"transforms.{alias}."
        options = {
            name.removeprefix(prefix): value.strip()
            for name, value in request.config.items()
            if name.startswith(prefix) and value.strip()
        }
        class_name = options.get("type", "")
        kind, _, side = class_name.rpartition(".")[2].partition("$")
        origin = f"{prefix}type"
        if options.get("predicate"):
            if not _drops_tombstones(kind, options, request):
                answer.refuse(
                    f"{prefix}predicate",
                    f"transforms with a predicate have no counterpart: use a step ({_STEP}) with a condition "
                    "(docs/jobs/steps.md)",
                )
            continue
        translate = _TRANSLATED.get(kind)
        if translate is None or side == "Key":
            _refuse(class_name, kind, origin, answer)
        elif request.form == AS_IS and kind != "RegexRouter":
            answer.refuse(origin, f"{class_name} can't be used: records are written as they are. Remove it")
        else:
            translate(f"{_identifier(alias)}", origin, options, request, answer)


def _refuse(class_name: str, kind: str, origin: str, answer: Answer) -> None:
    instead = _INSTEAD.get(kind, f"a step ({_STEP}, docs/jobs/steps.md)")
    answer.refuse(
        origin,
        f"{class_name or 'a transform without a type'} has no counterpart in a job. Remove it and use {instead}: options "
        "of a job may stand in this configuration",
    )


def _drops_tombstones(kind: str, options: Mapping[str, str], request: Request) -> bool:
    """Whether it is the usual way to drop tombstones; notes it."""
    predicate = request.config.get(f"predicates.{options['predicate']}.type", "").rpartition(".")[2]
    negated = options.get("negate", "false").lower() == "true"
    if kind != "Filter" or predicate != "RecordIsTombstone" or negated:
        return False
    request.drops_tombstones = True
    return True


def _unwrap(step: str, origin: str, options: Mapping[str, str], request: Request, answer: Answer) -> None:
    """ExtractNewRecordState: a job reads envelopes itself."""
    del step
    request.form = ENVELOPE
    for name in options:
        if name not in _HARMLESS:
            answer.refuse(
                f"{origin.removesuffix('type')}{name}",
                f"{name} of ExtractNewRecordState has no counterpart: a job reads envelopes itself. Remove it and add what it "
                "adds by a step of type select, such as columns='*, ums_op_ AS __op, ums_ts_ AS __ts'",
            )
    mode = options.get("delete.tombstone.handling.mode", "").lower()
    older = options.get("delete.handling.mode", "").lower()
    if "rewrite" in mode or older == "rewrite":
        answer.refuse(
            f"{origin.removesuffix('type')}{'delete.tombstone.handling.mode' if mode else 'delete.handling.mode'}",
            "rewrite has no counterpart: to keep deleted rows, remove it and set sink.jdbc.mode=upsert, "
            "sink.jdbc.delete.mode=soft, whose column ums_active_ is 0 for them",
        )
    if mode:
        request.drops_deletes |= mode == "drop"
    elif older or "drop.tombstones" in options:
        dropped = options.get("drop.tombstones", "true").lower() == "true"
        request.drops_deletes |= (older or "drop") == "drop" and dropped


def _route(step: str, origin: str, options: Mapping[str, str], request: Request, answer: Answer) -> None:
    """RegexRouter: new names of the topics that are known."""
    del step
    request.renames_topics = True
    try:
        pattern = compile_java(options.get("regex", ""))
        replacement = java_replacement(options.get("replacement", ""), pattern)
    except ConfigInvalid as error:
        answer.refuse(f"{origin.removesuffix('type')}regex", str(error))
        return
    for topic in request.topics:
        name = request.routed(topic)
        if pattern.fullmatch(name):
            request.routes[topic] = pattern.sub(replacement, name, count=1)


def _replace_field(step: str, origin: str, options: Mapping[str, str], request: Request, answer: Answer) -> None:
    """ReplaceField: a step of type select."""
    if not _rows(origin, request, answer):
        return
    excluded = _list(options.get("exclude") or options.get("blacklist", ""))
    included = _list(options.get("include") or options.get("whitelist", ""))
    pairs = [pair.partition(":") for pair in _list(options.get("renames", ""))]
    renames = {old.strip(): new.strip() for old, _, new in pairs}
    if not (excluded or included or renames):
        return
    if included:
        parts = [_quoted(name) if name not in renames else _renamed(name, renames[name]) for name in included]
    else:
        hidden = [*excluded, *renames]
        parts = [f"* EXCEPT ({', '.join(_quoted(name) for name in hidden)})"]
        parts += [_renamed(old, new) for old, new in renames.items() if old not in excluded]
    answer.add_step(step, "select", {"columns": ", ".join(parts)}, origin)


def _cast(step: str, origin: str, options: Mapping[str, str], request: Request, answer: Answer) -> None:
    """Cast: a step of type select."""
    if not _rows(origin, request, answer):
        return
    option = f"{origin.removesuffix('type')}spec"
    pairs = [pair.rpartition(":") for pair in _list(options.get("spec", ""))]
    columns = {name.strip(): kind.strip().lower() for name, _, kind in pairs}
    if not columns or "" in columns or not set(columns.values()) <= _TYPES.keys():
        answer.refuse(
            option,
            f"spec must be a list of column:type, with the types {', '.join(_TYPES)}; a whole value can't be cast",
        )
        return
    parts = [f"* EXCEPT ({', '.join(_quoted(name) for name in columns)})"]
    parts += [f"CAST({_quoted(name)} AS {_TYPES[kind]}) AS {_quoted(name)}" for name, kind in columns.items()]
    answer.add_step(step, "select", {"columns": ", ".join(parts)}, origin)


def _rows(origin: str, request: Request, answer: Answer) -> bool:
    """Whether the transform sees flat rows."""
    unwrapped = any(
        "ExtractNewRecordState" in request.config.get(f"transforms.{alias}.type", "")
        for alias in request.items("transforms")
    )
    if request.form == FLAT or unwrapped:
        return True
    answer.refuse(
        origin,
        "it would see Debezium's envelope, whose columns are in before and after: remove it and use a step of type select, "
        "which sees the columns; or set source.format=plain if the records are flat",
    )
    return False


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _renamed(old: str, new: str) -> str:
    return f"{_quoted(old)} AS {_quoted(new)}"


def _identifier(alias: str) -> str:
    """A name of a step that is made of the transform's."""
    return "t_" + re.sub(r"[^A-Za-z0-9_]", "_", alias)


_TRANSLATED: Final[Mapping[str, Callable[[str, str, Mapping[str, str], Request, Answer], None]]] = {
    "ExtractNewRecordState": _unwrap,
    "RegexRouter": _route,
    "ReplaceField": _replace_field,
    "Cast": _cast,
}
