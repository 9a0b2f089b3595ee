"""``transforms`` of a sink connector: those that a job has a counterpart for, and which step replaces the others. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid
from connectors.java_regex import compile_java, java_replacement
from spark_jobs.java_sinks.translation.model import AS_IS, ENVELOPE, FLAT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

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


def translate_transforms(request: TranslationRequest, answer: TranslatedJob) -> None:
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
            _refuse_transform(class_name, kind, origin, answer)
        elif request.form == AS_IS and kind != "RegexRouter":
            answer.refuse(origin, f"{class_name} can't be used: records are written as they are. Remove it")
        else:
            translate(f"{_make_step_name(alias)}", origin, options, request, answer)


def _refuse_transform(class_name: str, kind: str, origin: str, answer: TranslatedJob) -> None:
    instead = _INSTEAD.get(kind, f"a step ({_STEP}, docs/jobs/steps.md)")
    answer.refuse(
        origin,
        f"{class_name or 'a transform without a type'} has no counterpart in a job. Remove it and use {instead}: options "
        "of a job may stand in this configuration",
    )


def _drops_tombstones(kind: str, options: Mapping[str, str], request: TranslationRequest) -> bool:
    """Whether it is the usual way to drop tombstones; notes it."""
    predicate = request.config.get(f"predicates.{options['predicate']}.type", "").rpartition(".")[2]
    negated = options.get("negate", "false").lower() == "true"
    if kind != "Filter" or predicate != "RecordIsTombstone" or negated:
        return False
    request.drops_tombstones = True
    return True


def _translate_unwrap(
    step: str, origin: str, options: Mapping[str, str], request: TranslationRequest, answer: TranslatedJob
) -> None:
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


def _translate_route(
    step: str, origin: str, options: Mapping[str, str], request: TranslationRequest, answer: TranslatedJob
) -> None:
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


def _replace_field(
    step: str, origin: str, options: Mapping[str, str], request: TranslationRequest, answer: TranslatedJob
) -> None:
    """ReplaceField: a step of type select."""
    if not _sees_flat_rows(origin, request, answer):
        return
    excluded = _split_list(options.get("exclude") or options.get("blacklist", ""))
    included = _split_list(options.get("include") or options.get("whitelist", ""))
    pairs = [pair.partition(":") for pair in _split_list(options.get("renames", ""))]
    renames = {old.strip(): new.strip() for old, _, new in pairs}
    if not (excluded or included or renames):
        return
    if included:
        parts = [_quote_name(name) if name not in renames else _rename_column(name, renames[name]) for name in included]
    else:
        hidden = [*excluded, *renames]
        parts = [f"* EXCEPT ({', '.join(_quote_name(name) for name in hidden)})"]
        parts += [_rename_column(old, new) for old, new in renames.items() if old not in excluded]
    answer.add_step(step, "select", {"columns": ", ".join(parts)}, origin)


def _translate_cast(
    step: str, origin: str, options: Mapping[str, str], request: TranslationRequest, answer: TranslatedJob
) -> None:
    """Cast: a step of type select."""
    if not _sees_flat_rows(origin, request, answer):
        return
    option = f"{origin.removesuffix('type')}spec"
    pairs = [pair.rpartition(":") for pair in _split_list(options.get("spec", ""))]
    columns = {name.strip(): kind.strip().lower() for name, _, kind in pairs}
    if not columns or "" in columns or not set(columns.values()) <= _TYPES.keys():
        answer.refuse(
            option,
            f"spec must be a list of column:type, with the types {', '.join(_TYPES)}; a whole value can't be cast",
        )
        return
    parts = [f"* EXCEPT ({', '.join(_quote_name(name) for name in columns)})"]
    parts += [f"CAST({_quote_name(name)} AS {_TYPES[kind]}) AS {_quote_name(name)}" for name, kind in columns.items()]
    answer.add_step(step, "select", {"columns": ", ".join(parts)}, origin)


def _sees_flat_rows(origin: str, request: TranslationRequest, answer: TranslatedJob) -> bool:
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


def _split_list(item_list: str) -> list[str]:
    return [item.strip() for item in item_list.split(",") if item.strip()]


def _quote_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _rename_column(old: str, new: str) -> str:
    return f"{_quote_name(old)} AS {_quote_name(new)}"


def _make_step_name(alias: str) -> str:
    """A name of a step that is made of the transform's."""
    return "t_" + re.sub(r"[^A-Za-z0-9_]", "_", alias)


_TRANSLATED: Final[Mapping[str, Callable[[str, str, Mapping[str, str], TranslationRequest, TranslatedJob], None]]] = {
    "ExtractNewRecordState": _translate_unwrap,
    "RegexRouter": _translate_route,
    "ReplaceField": _replace_field,
    "Cast": _translate_cast,
}
