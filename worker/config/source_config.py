"""The options that every source connector has, as Kafka Connect 4.1 orders and labels them, and a few of ours.

What the task host reads is declared in ``worker.host.options``, the transform pipeline's options in
``worker.transforms.options``, topic creation's in ``offsets.creation``; here they get their position in forms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.api import LABELS_KEY, NODE_KEY
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, Width, at_least, invalid, non_empty, one_of
from offsets.creation import GROUPS_KEY
from worker.control.state.verifications import VERIFY_KEYS
from worker.host.options import CONNECTOR_KEYS
from worker.transforms.options import PIPELINE_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Validator

COMMON: Final = "Common"
ERRORS: Final = "Error Handling"
EXACTLY_ONCE: Final = "Exactly Once Support"
OFFSETS_TOPIC: Final = "offsets.topic"

_LOW, _MEDIUM, _HIGH = Importance.LOW, Importance.MEDIUM, Importance.HIGH


@dataclass(frozen=True, slots=True)
class _FormPosition:
    """An option's position in a form."""

    group: str
    order: int
    width: Width
    importance: Importance
    label: str


#: Where Kafka Connect puts the options that are declared elsewhere.
_FORM_POSITIONS: Final[Mapping[str, _FormPosition]] = {
    "errors.retry.timeout": _FormPosition(ERRORS, 1, Width.MEDIUM, _MEDIUM, "Retry Timeout for Errors"),
    "errors.retry.delay.max.ms": _FormPosition(
        ERRORS, 2, Width.MEDIUM, _MEDIUM, "Maximum Delay Between Retries for Errors"
    ),
    "errors.tolerance": _FormPosition(ERRORS, 3, Width.SHORT, _MEDIUM, "Error Tolerance"),
    "errors.log.enable": _FormPosition(ERRORS, 4, Width.SHORT, _MEDIUM, "Log Errors"),
    "errors.log.include.messages": _FormPosition(ERRORS, 5, Width.SHORT, _MEDIUM, "Log Error Details"),
    "exactly.once.support": _FormPosition(EXACTLY_ONCE, 2, Width.SHORT, _MEDIUM, "Exactly once support"),
    "transaction.boundary": _FormPosition(EXACTLY_ONCE, 3, Width.SHORT, _MEDIUM, "Transaction Boundary"),
    "transaction.boundary.interval.ms": _FormPosition(
        EXACTLY_ONCE, 4, Width.SHORT, _LOW, "Transaction boundary interval"
    ),
    "offsets.storage.topic": _FormPosition(OFFSETS_TOPIC, 1, Width.LONG, _LOW, "Offsets topic"),
    "errors.deadletterqueue.topic.name": _FormPosition(
        ERRORS, 6, Width.MEDIUM, _MEDIUM, "Dead Letter Queue Topic Name"
    ),
    "errors.deadletterqueue.topic.replication.factor": _FormPosition(
        ERRORS, 7, Width.MEDIUM, _MEDIUM, "Dead Letter Queue Topic Replication Factor"
    ),
    "errors.deadletterqueue.context.headers.enable": _FormPosition(
        ERRORS, 8, Width.MEDIUM, _MEDIUM, "Enable Error Context Headers"
    ),
    "errors.restart.policy": _FormPosition(ERRORS, 9, Width.SHORT, _MEDIUM, "Automatic Restart"),
    "errors.restart.max.attempts": _FormPosition(ERRORS, 10, Width.SHORT, _LOW, "Restarts in a Row"),
    "errors.restart.delay.ms": _FormPosition(ERRORS, 11, Width.MEDIUM, _LOW, "Delay Before a Restart"),
    "errors.restart.max.delay.ms": _FormPosition(ERRORS, 12, Width.MEDIUM, _LOW, "Longest Delay Before a Restart"),
    "errors.restart.reset.ms": _FormPosition(ERRORS, 13, Width.MEDIUM, _LOW, "Restarts Forgotten After"),
    "fast.path": _FormPosition(COMMON, 30, Width.SHORT, _LOW, "Fast Path"),
}


def _optional_check(check: Validator) -> Validator:
    return lambda name, value: None if value is None else check(name, value)


#: Checks that Kafka Connect makes and the task host doesn't need.
_CHECKS: Final[Mapping[str, Validator]] = {
    "transaction.boundary.interval.ms": _optional_check(at_least(0)),
    "offsets.storage.topic": non_empty,
    # Kafka Connect names what is allowed in an order of its own.
    "exactly.once.support": one_of("required", "requested", ignore_case=True),
    "transaction.boundary": one_of("interval", "poll", "connector", ignore_case=True),
}


def name_problem(name: str, value: Any) -> str | None:
    """A connector's name: not empty, no control characters; with Kafka's messages."""
    if value is None:
        return None
    if value == "":
        return invalid(name, value, "String may not be empty")
    control = [str(ord(char)) for char in value if ord(char) < 32 or 127 <= ord(char) < 160]
    if control:
        return invalid(
            name,
            value,
            "String may not contain control sequences but had the following ASCII chars: " + ", ".join(control),
        )
    return None


def _check_labels(name: str, value: Any) -> str | None:
    bad = [item for item in value or () if "=" not in item]
    return invalid(name, value, f"{bad[0]} is not label=value") if bad else None


def _converter_keys(role: str, order: int) -> tuple[ConfigKey, ConfigKey]:
    option = f"{role.lower()}.converter"
    return (
        ConfigKey(
            name=option,
            type=ConfigType.CLASS,
            default=None,
            importance=_LOW,
            group=COMMON,
            order=order,
            width=Width.SHORT,
            display_name=f"{role} converter class",
            doc=f"Class that turns record {role.lower()}s into the bytes in Kafka. Java class names are accepted. "
            f"Not set, the worker's {option} is used with the worker's options. Options of a converter that is set "
            f"here are given as {option}.*.",
            example="org.apache.kafka.connect.json.JsonConverter",
        ),
        ConfigKey(
            name=f"{option}.plugin.version",
            type=ConfigType.STRING,
            default=None,
            importance=_LOW,
            group=COMMON,
            order=order + 1,
            width=Width.SHORT,
            display_name=f"{role} converter version",
            doc=f"Version range that {option} must lie in; looked at only if that is set.",
            example="[1.0,2.0)",
        ),
    )


def _host_key(name: str) -> ConfigKey:
    key = next(key for key in CONNECTOR_KEYS if key.name == name)
    position = _FORM_POSITIONS[name]
    return replace(
        key,
        group=position.group,
        order=position.order,
        width=position.width,
        importance=position.importance,
        display_name=position.label,
        validator=_CHECKS.get(name, key.validator),
    )


_KEYS: Final = (
    ConfigKey(
        name="name",
        type=ConfigType.STRING,
        validator=name_problem,
        importance=_HIGH,
        group=COMMON,
        order=1,
        width=Width.MEDIUM,
        display_name="Connector name",
        doc="Name of the connector; no other of the cluster may have it. Offsets are kept under it, also when the "
        "connector is deleted and recreated.",
    ),
    ConfigKey(
        name="connector.class",
        type=ConfigType.STRING,
        importance=_HIGH,
        group=COMMON,
        order=2,
        width=Width.LONG,
        display_name="Connector class",
        doc="The connector to run: its Python path, the Java class name that it replaces, or the short form of either.",
        example="FileStreamSource",
    ),
    ConfigKey(
        name="connector.plugin.version",
        type=ConfigType.STRING,
        default=None,
        importance=_MEDIUM,
        group=COMMON,
        order=3,
        width=Width.MEDIUM,
        display_name="Connector version",
        doc="Version range that the connector must lie in; a version without brackets must be met exactly.",
        example="[1.0,2.0)",
    ),
    ConfigKey(
        name="tasks.max",
        type=ConfigType.INT,
        default=1,
        validator=at_least(1),
        importance=_HIGH,
        group=COMMON,
        order=4,
        width=Width.SHORT,
        display_name="Tasks max",
        doc="The work is split into at most this many tasks; each runs on one core of one worker.",
    ),
    ConfigKey(
        name="tasks.max.enforce",
        type=ConfigType.BOOLEAN,
        default=True,
        importance=_LOW,
        group=COMMON,
        order=5,
        width=Width.SHORT,
        display_name="Enforce tasks max",
        doc="Whether a connector that asks for more tasks than tasks.max fails. Deprecated in Kafka Connect.",
    ),
    *_converter_keys("Key", 6),
    *_converter_keys("Value", 8),
    *_converter_keys("Header", 10),
    *PIPELINE_KEYS,
    ConfigKey(
        name="config.action.reload",
        type=ConfigType.STRING,
        default="restart",
        validator=one_of("none", "restart"),
        importance=_LOW,
        group=COMMON,
        order=14,
        width=Width.MEDIUM,
        display_name="Reload Action",
        doc="What to do when a config provider gives a new value: restart the connector and its tasks with it, or restart "
        "nothing. Left out of a configuration, neither counts: passwords are used from the next connection on, and a task is "
        "restarted only for values that it can't take over while it runs.",
    ),
    *(
        _host_key(f"errors.{name}")
        for name in ("retry.timeout", "retry.delay.max.ms", "tolerance", "log.enable", "log.include.messages")
    ),
    replace(GROUPS_KEY, order=1),
    *(
        _host_key(name)
        for name in (
            "exactly.once.support",
            "transaction.boundary",
            "transaction.boundary.interval.ms",
            "offsets.storage.topic",
        )
    ),
)

#: Options that Kafka Connect's source connectors don't have.
EXTENSIONS: Final = (
    *(
        _host_key(key.name)
        for key in CONNECTOR_KEYS
        if key.name.startswith(("errors.deadletterqueue.", "errors.restart.")) or key.name == "fast.path"
    ),
    ConfigKey(
        name=NODE_KEY,
        type=ConfigType.STRING,
        default=None,
        importance=_LOW,
        group=COMMON,
        order=15,
        width=Width.MEDIUM,
        display_name="Node",
        doc="Run only on this worker: its host, its id (host:port), its label node, or a label "
        "of this name (node.labels). For sources that can only be read on their own machine.",
    ),
    ConfigKey(
        name=LABELS_KEY,
        type=ConfigType.LIST,
        default=[],
        validator=_check_labels,
        importance=_LOW,
        group=COMMON,
        order=16,
        width=Width.MEDIUM,
        display_name="Labels",
        doc="Run only on workers that have all of these labels (node.labels).",
        example="zone=a,disk=ssd",
    ),
    *VERIFY_KEYS,
)

#: All of them; the reference is made from it.
SOURCE_CONFIG: Final = ConfigDef((*_KEYS, *EXTENSIONS))
