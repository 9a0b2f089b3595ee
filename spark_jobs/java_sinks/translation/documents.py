"""Shared by the Java sinks of documents (Elasticsearch, OpenSearch, MongoDB): keys, deletes, names of targets. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_jobs.java_sinks.translation.converters import BYTES
from spark_jobs.java_sinks.translation.model import ENVELOPE, FLAT
from spark_jobs.java_sinks.translation.table_names import TOPIC, Naming

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.java_sinks.translation.model import TranslatedJob, TranslationRequest

_KEYS = "source.key.columns"


def topic_names(option: str, target: str, fixed: Mapping[str, str], pattern: str = TOPIC) -> Naming:
    """Names of targets that are the topics' names.

    Args:
        option: of the Java sink, for messages.
        target: the job's option with the template.
        fixed: targets that are named for single topics.
        pattern: the Java sink's format, with ``${topic}``.
    """
    return Naming(
        option=option,
        clean=str,
        flat="${namespace}",
        inside="${namespace}",
        source={},
        fixed=fixed,
        table=target,
        schema="",
        shared="",
        pattern=pattern,
    )


def demand_key(request: TranslationRequest, answer: TranslatedJob, reason: str) -> None:
    """Refuse keys that have no columns, unless the configuration names them.

    Args:
        request: the configuration.
        answer: the translation.
        reason: what the key is needed for.
    """
    if answer.properties.get("source.key.encoding") == BYTES and _KEYS not in {*request.config, *answer.properties}:
        answer.refuse(
            "key.converter",
            f"{reason}, and keys that this converter reads have no columns: name the columns of the key, which must be in the "
            f"row, in {_KEYS}",
        )


def translate_deletes(request: TranslationRequest, answer: TranslatedJob, option: str, *, deletes: bool) -> None:
    """Whether records without a value, and deletes of envelopes, remove documents."""
    if request.form == ENVELOPE:
        if not deletes or request.drops_deletes:
            answer.add_step("without_deletes", "filter", {"condition": "ums_op_ <> 'd'"}, option)
    elif request.form == FLAT and not deletes:
        answer.put("source.tombstones", "ignore", option)
