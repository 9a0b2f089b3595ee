"""Checks of connectors' declarations alone: pure, for single connectors and for the whole fleet."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Final

from connectors.api import SourceConnector, SourceTask
from connectors.errors import ConfigInvalid
from connectors.job_api import JobConnector, JobTask
from connectors.options import ConfigKey, ConfigType, java_string, parse_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_NUMBERS: Final = frozenset({ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE})
_OPTION: Final = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*\Z")
#: Names of Debezium's dashboards keep their attributes' spelling.
_METRIC: Final = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*\Z|debezium_metrics_[A-Za-z]+\Z")
_VERSION: Final = re.compile(r"\d+(\.\d+)+")
_SECRET: Final = re.compile(r"(^|[._-])(password|passwd|secret|token|credentials?|private[._-]?key)\Z")
#: Properties that the runtime reads; a connector's option of that name would be read by both.
_RESERVED: Final = frozenset(
    {
        "name",
        "connector.class",
        "connector.plugin.version",
        "tasks.max",
        "tasks.max.enforce",
        "key.converter",
        "value.converter",
        "header.converter",
        "transforms",
        "predicates",
        "config.action.reload",
        "errors.tolerance",
        "errors.retry.timeout",
        "errors.retry.delay.max.ms",
        "errors.log.enable",
        "errors.log.include.messages",
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
        "topic.creation.groups",
    }
)
#: Suffix of a name -> the unit it stands for.
_SUFFIXES: Final = {".ms": "ms", ".bytes": "bytes", ".seconds": "s"}


def check_naming(connector: type[SourceConnector]) -> Iterator[str]:
    """Names that break the rules."""
    for name, key in connector.config_def.keys.items():
        if not _OPTION.match(name):
            yield f"option {name!r}: use lower-case words joined by dots"
        if name in _RESERVED:
            yield f"option {name!r} is the runtime's own"
        if _SECRET.search(name) and not key.secret:
            yield f"option {name!r} sounds like a secret but is not of type PASSWORD"
        for suffix, unit in _SUFFIXES.items():
            if name.endswith(suffix) and key.type in _NUMBERS and key.unit != unit:
                yield f"option {name!r} ends in {suffix} but its unit is {key.unit!r}"
    for name, (kind, description) in connector.metrics.items():
        if not _METRIC.match(name):
            yield f"metric {name!r}: use lower-case words joined by hyphens"
        if kind not in {"gauge", "counter"}:
            yield f"metric {name!r} is of kind {kind!r}; it must be gauge or counter"
        if not description.strip():
            yield f"metric {name!r} has no description"


def check_documentation(connector: type[SourceConnector]) -> Iterator[str]:
    """Declarations that tell a user too little."""
    for cls in (connector, connector.task_class):
        if not (cls.__doc__ or "").strip() or cls.__doc__ in {SourceConnector.__doc__, SourceTask.__doc__}:
            yield f"class {cls.__name__} has no docstring"
    for name, key in connector.config_def.keys.items():
        if not key.doc.strip():
            yield f"option {name!r} has no doc"
        if key.type in _NUMBERS and not key.unit:
            yield f"option {name!r} is a number without a unit"


def check_contract(connector: type[SourceConnector]) -> Iterator[str]:
    """Attributes that the runtime needs."""
    if not _VERSION.match(getattr(connector, "version", "")):
        yield "version is missing or does not start with a number like 1.0"
    task_class: object = connector.task_class
    if not (isinstance(task_class, type) and issubclass(task_class, SourceTask)):
        yield "task_class is not a SourceTask"
    elif not inspect.isasyncgenfunction(connector.task_class.batches):
        yield "task_class.batches is not an async generator"
    for name in ("validate", "exactly_once_support", "can_define_transaction_boundaries", "alter_offsets"):
        if not inspect.ismethod(getattr(connector, name)):
            yield f"{name} must be a class method: it is called without an instance"


def job_contract(connector: type[JobConnector]) -> Iterator[str]:
    """Attributes that the runtime needs of a connector that moves data itself, and strings that its users need."""
    if not _VERSION.match(getattr(connector, "version", "")):
        yield "version is missing or does not start with a number like 1.0"
    task_class: object = connector.task_class
    if not (isinstance(task_class, type) and issubclass(task_class, JobTask)):
        yield "task_class is not a JobTask"
    elif not inspect.iscoroutinefunction(connector.task_class.run):
        yield "task_class.run is not a coroutine function"
    for name in ("completed", "definition", "validate", "offsets", "alter_offsets"):
        if not inspect.ismethod(getattr(connector, name)):
            yield f"{name} must be a class method: it is called without an instance"
    for cls in (connector, connector.task_class):
        if not (cls.__doc__ or "").strip() or cls.__doc__ in {JobConnector.__doc__, JobTask.__doc__}:
            yield f"class {cls.__name__} has no docstring"
    for name, key in connector.config_def.keys.items():
        if not _OPTION.match(name):
            yield f"option {name!r}: use lower-case words joined by dots"
        if _SECRET.search(name) and not key.secret:
            yield f"option {name!r} sounds like a secret but is not of type PASSWORD"
        if not key.doc.strip():
            yield f"option {name!r} has no doc"


def check_options(connector: type[SourceConnector | JobConnector]) -> Iterator[str]:
    """Options whose defaults or examples do not fit their own declarations."""
    for name, key in connector.config_def.keys.items():
        if key.required or key.default is None:
            yield from () if key.required or key.validator is None else _list_complaints(key, None, "default")
        else:
            yield from _list_complaints(key, key.default, "default")
            yield from _round_trip(key)
        if key.example:
            try:
                yield from _list_complaints(key, parse_value(key, key.example), "example")
            except ConfigInvalid as error:
                yield f"option {name!r}: its example is refused: {error}"


def _list_complaints(key: ConfigKey, value: object, value_name: str) -> Iterator[str]:
    complaint = key.validator(key.name, value) if key.validator is not None else None
    if complaint is not None:
        yield f"option {key.name!r}: its {value_name} is refused: {complaint}"


def _round_trip(key: ConfigKey) -> Iterator[str]:
    if key.type is ConfigType.PASSWORD:
        return
    raw = ",".join(map(java_string, key.default)) if isinstance(key.default, list | tuple) else java_string(key.default)
    try:
        parsed = parse_value(key, raw)
    except ConfigInvalid as error:
        yield f"option {key.name!r}: its default is not of its type: {error}"
        return
    if parsed != key.default and list(parsed) != list(key.default):
        yield f"option {key.name!r}: its default {key.default!r} becomes {parsed!r} when it is written and read"


#: The checks by name.
DECLARATION_CHECKS: Final[Mapping[str, Callable[[type[SourceConnector]], Iterator[str]]]] = {
    "names_follow_the_rules": check_naming,
    "options_and_metrics_are_documented": check_documentation,
    "attributes_fulfil_the_contract": check_contract,
    "options_fit_their_declarations": check_options,
}

#: Those for a connector that moves data itself. It has no records, so there is nothing for the conformance kit and no TYPES.md;
#: options of the runtime's names (``errors.tolerance``) are its own, as the runtime's errors are about records.
JOB_CHECKS: Final[Mapping[str, Callable[[type[JobConnector]], Iterator[str]]]] = {
    "attributes_fulfil_the_contract": job_contract,
    "options_fit_their_declarations": check_options,
}
