"""Options: one declaration per option, and all that follows from it.

A ``ConfigKey`` validates, gives the parsed value, answers ``/connector-plugins/*/config`` and ``validate``, prints
``--help`` and generates ``docs/reference/``. Types, error messages and the JSON forms are Kafka's ``ConfigDef``'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from connectors.errors import ConfigInvalid

MASK: Final = "[hidden]"
#: Characters that Java's `trim` takes away: not all that Unicode calls white space.
BLANKS: Final = "".join(map(chr, range(33)))


class ConfigType(StrEnum):
    """Types of options, named as Kafka names them."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type


class Importance(StrEnum):
    """How likely a user has to think about an option."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """How wide a form's field should be."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Password:
    """A secret: never shows in a representation, a log line or an error.

    The one in a running task's configuration gets a new ``value`` when a config provider gives one: read it when it is needed,
    for each connection, and keep no copy.
    """

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


#: The default of an option that has none.
REQUIRED: Final = _Required()

#: Checks a parsed value; returns the complaint or None.
Validator = Callable[[str, Any], str | None]
#: Gives recommended values and visibility from the option's name and the whole raw configuration.
Recommender = Callable[[str, Mapping[str, str]], tuple[Sequence[Any], bool]]


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One complaint about one property.

    Attributes:
        name: the property.
        message: what is wrong, and how to fix it.
        warning: whether the connector works all the same: the user gets a warning, and nothing is refused.
    """

    name: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """The declaration of one option.

    Args:
        name: the property.
        type: its type.
        doc: one or more sentences: what it does and what follows from it.
        default: the parsed default, ``REQUIRED``, or None for "not set".
        validator: checks the parsed value; see the functions below.
        importance: how likely a user has to think about it.
        group: the heading of its section.
        order: its position in the group; declarations are numbered by ``ConfigDef`` where it is not given.
        width: how wide a form's field should be.
        display_name: its label; the property's name if empty.
        dependents: options whose recommended values depend on this one.
        recommender: recommended values.
        unit: of a number: ``ms``, ``s``, ``bytes``, ``rows`` ...; shown in the reference.
        example: a value as a user would write it; shown in the reference.
        aliases: other property names that mean this one (deprecated or of another product).
        internal: accepted but not shown in the reference.
    """

    name: str
    type: ConfigType
    doc: str
    default: Any = REQUIRED
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None
    unit: str = ""
    example: str = ""
    aliases: tuple[str, ...] = ()
    internal: bool = False

    @property
    def secret(self) -> bool:
        """Whether values must be masked wherever they could be seen."""
        return self.type is ConfigType.PASSWORD

    @property
    def required(self) -> bool:
        """Whether the option has no default."""
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Declares the options of one group: a method for each type, ``high`` and ``low`` for another importance than medium.

    ``KeyGroup("Stream").low.integer("poll.interval.ms", "How long ...", default=500)`` is the ``ConfigKey`` with these.
    """

    name: str
    importance: Importance = Importance.MEDIUM

    @property
    def high(self) -> KeyGroup:
        """The same group, for options that users have to think about."""
        return KeyGroup(self.name, Importance.HIGH)

    @property
    def low(self) -> KeyGroup:
        """The same group, for options that few users need."""
        return KeyGroup(self.name, Importance.LOW)

    def declare(self, kind: ConfigType, name: str, doc: str, **rest: Any) -> ConfigKey:
        """One option; ``rest`` are the other arguments of ``ConfigKey``."""
        return ConfigKey(name=name, type=kind, doc=doc, group=self.name, importance=self.importance, **rest)

    def boolean(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """A switch."""
        return self.declare(ConfigType.BOOLEAN, name, doc, **rest)

    def string(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """A string."""
        return self.declare(ConfigType.STRING, name, doc, **rest)

    def integer(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """A whole number of 32 bits."""
        return self.declare(ConfigType.INT, name, doc, **rest)

    def short(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """A whole number of 16 bits."""
        return self.declare(ConfigType.SHORT, name, doc, **rest)

    def long(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """A whole number of 64 bits."""
        return self.declare(ConfigType.LONG, name, doc, **rest)

    def double(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """A number with a fraction."""
        return self.declare(ConfigType.DOUBLE, name, doc, **rest)

    def strings(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """A list of strings."""
        return self.declare(ConfigType.LIST, name, doc, **rest)

    def password(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """A secret."""
        return self.declare(ConfigType.PASSWORD, name, doc, **rest)

    def java_class(self, name: str, doc: str, **rest: Any) -> ConfigKey:
        """The name of a class."""
        return self.declare(ConfigType.CLASS, name, doc, **rest)


_RANGES: Final = {ConfigType.INT: 31, ConfigType.SHORT: 15, ConfigType.LONG: 63}
#: Of more digits Python makes no number.
_INTEGER: Final = re.compile(r"[+-]?\d{1,4300}\Z", re.ASCII)
_NOUN: Final = {ConfigType.INT: "INT", ConfigType.SHORT: "SHORT", ConfigType.LONG: "LONG", ConfigType.DOUBLE: "DOUBLE"}


def invalid(name: str, value: object, reason: str) -> str:
    """Kafka's text for a value that is not allowed (clients match on it)."""
    return f"Invalid value {java_string(value)} for configuration {name}: {reason}"


def java_string(value: object) -> str:
    """``value`` as Java's ``String.valueOf`` would print it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(java_string(item) for item in value) + "]"
    return str(value)


def given_value(key: ConfigKey, raw: Mapping[str, str]) -> tuple[Any, list[str]]:
    """An option's value, null if it is missing or can't be parsed, and the complaints about that; asks no validator."""
    if key.name in raw:
        try:
            return parse_value(key, raw[key.name]), []
        except ConfigInvalid as error:
            return None, [str(error)]
    if key.required:
        return None, [f'Missing required configuration "{key.name}" which has no default value.']
    return key.default, []


def parse_value(key: ConfigKey, raw: object) -> Any:
    """``raw`` (usually a string) as the option's type.

    Raises:
        ConfigInvalid: it is not of that type; the text is Kafka's.
    """
    if raw is None:
        return None
    stripped = raw.strip(BLANKS) if isinstance(raw, str) else raw
    kind = key.type
    if kind is ConfigType.BOOLEAN:
        if isinstance(stripped, bool):
            return stripped
        lowered = stripped.lower() if isinstance(stripped, str) else ""
        if lowered in ("true", "false"):
            return lowered == "true"
        raise ConfigInvalid(invalid(key.name, raw, "Expected value to be either true or false"))
    if kind is ConfigType.PASSWORD:
        return stripped if isinstance(stripped, Password) else Password(str(stripped))
    if kind in _RANGES:
        if isinstance(stripped, int) and not isinstance(stripped, bool):
            number = stripped
        elif isinstance(stripped, str) and _INTEGER.match(stripped):
            number = int(stripped)
        else:
            raise ConfigInvalid(invalid(key.name, raw, f"Not a number of type {_NOUN[kind]}"))
        if not -(1 << _RANGES[kind]) <= number < 1 << _RANGES[kind]:
            raise ConfigInvalid(invalid(key.name, raw, f"Not a number of type {_NOUN[kind]}"))
        return number
    if kind is ConfigType.DOUBLE:
        try:
            return float(stripped)  # type: ignore[arg-type]  # anything float refuses is reported below
        except (TypeError, ValueError):
            raise ConfigInvalid(invalid(key.name, raw, "Not a number of type DOUBLE")) from None
    if kind is ConfigType.LIST:
        if isinstance(stripped, list | tuple):
            return list(stripped)
        return [item.strip(BLANKS) for item in str(stripped).split(",")] if stripped != "" else []
    return str(stripped)


class Config(Mapping[str, Any]):
    """A parsed configuration: parsed values by option name, and the raw strings."""

    __slots__ = ("_values", "raw")

    def __init__(self, values: Mapping[str, Any], raw: Mapping[str, str]) -> None:
        self._values = dict(values)
        self.raw = dict(raw)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Config({self._values!r})"  # secrets are Password objects, which mask themselves

    def renew(self, newer: Config, names: Iterable[str]) -> None:
        """Take these options' values from ``newer``. Secrets are changed in place: whoever holds one has the new value."""
        for name in names:
            old, new = self._values.get(name), newer[name]
            if isinstance(old, Password) and isinstance(new, Password):
                old.value = new.value
            else:
                self._values[name] = new
            if name in newer.raw:
                self.raw[name] = newer.raw[name]

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Raw properties that start with ``prefix``, without it."""
        return {name[len(prefix) :]: value for name, value in self.raw.items() if name.startswith(prefix)}


@dataclass(slots=True)
class ConfigDef:
    """A set of options, in the order of their declaration."""

    keys: dict[str, ConfigKey] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)

    def __init__(self, keys: Sequence[ConfigKey] = ()) -> None:
        self.keys = {}
        self.groups = []
        for key in keys:
            self.add(key)

    def add(self, key: ConfigKey) -> None:
        """Add one declaration.

        Raises:
            ValueError: the name is declared already.
        """
        if key.name in self.keys:
            raise ValueError(f"option {key.name} is declared twice")
        if key.group is not None and key.group not in self.groups:
            self.groups.append(key.group)
        self.keys[key.name] = key

    def extended(self, keys: Sequence[ConfigKey]) -> ConfigDef:
        """A new definition with ``keys`` after this one's."""
        return ConfigDef([*self.keys.values(), *keys])

    def canonical(self, raw: Mapping[str, str]) -> dict[str, str]:
        """``raw`` with aliases replaced by the names they stand for; the canonical name wins where both are given."""
        names = {alias: key.name for key in self.keys.values() for alias in key.aliases}
        result = {names.get(name, name): value for name, value in raw.items() if name in names}
        result.update({name: value for name, value in raw.items() if name not in names})
        return result

    def values(self, raw: Mapping[str, str]) -> dict[str, ConfigValue]:
        """Each option's parsed value with its complaints; never raises."""
        raw = self.canonical(raw)
        result: dict[str, ConfigValue] = {}
        for key in self.keys.values():
            value, errors = given_value(key, raw)
            if key.validator is not None and not errors:
                complaint = key.validator(key.name, value)
                if complaint is not None:
                    errors.append(complaint)
            recommended: Sequence[Any] = ()
            visible = True
            if key.recommender is not None:
                recommended, visible = key.recommender(key.name, raw)
            result[key.name] = ConfigValue(key.name, value, errors, list(recommended), visible)
        return result

    def parse(self, raw: Mapping[str, str]) -> Config:
        """The parsed configuration.

        Raises:
            ConfigInvalid: with every complaint in its message.
        """
        values = self.values(raw)
        errors = [message for value in values.values() for message in value.errors]
        if errors:
            raise ConfigInvalid("\n".join(errors))
        return Config({name: value.value for name, value in values.items()}, self.canonical(raw))


@dataclass(slots=True)
class ConfigValue:
    """One option's value in a ``validate`` answer."""

    name: str
    value: Any
    errors: list[str]
    recommended: list[Any]
    visible: bool


# Validators. Each returns Kafka's text, so that a client sees the same words.


def at_least(low: float) -> Validator:
    """Numbers not below ``low``."""

    def check(name: str, value: Any) -> str | None:
        if value is None:
            return invalid(name, value, "Value must be non-null")
        if value < low:
            return invalid(name, value, f"Value must be at least {low}")
        return None

    return check


def between(low: float, high: float) -> Validator:
    """Numbers from ``low`` to ``high``, both included."""

    def check(name: str, value: Any) -> str | None:
        if value is None:
            return invalid(name, value, "Value must be non-null")
        if value < low:
            return invalid(name, value, f"Value must be at least {low}")
        if value > high:
            return invalid(name, value, f"Value must be no more than {high}")
        return None

    return check


def one_of(*allowed: str, ignore_case: bool = False) -> Validator:
    """One of the given strings; null passes only if it is the default."""
    folded = {item.lower() for item in allowed}

    def check(name: str, value: Any) -> str | None:
        if ignore_case:
            if value is None or str(value).lower() not in folded:
                return invalid(
                    name,
                    value,
                    "String must be one of (case insensitive): " + ", ".join(item.upper() for item in allowed),
                )
        elif value is not None and value not in allowed:
            return invalid(name, value, "String must be one of: " + ", ".join(allowed))
        return None

    return check


def words(*allowed: str) -> Validator:
    """One of the given words, in any case and with spaces around it; null passes."""
    folded = {item.lower() for item in allowed}

    def check(name: str, value: Any) -> str | None:
        if value is not None and str(value).strip().lower() not in folded:
            return invalid(name, value, "Value must be one of " + ", ".join(allowed))
        return None

    return check


def non_empty(name: str, value: Any) -> str | None:
    """A string with at least one character (null is left to ``REQUIRED``)."""
    if value is not None and value == "":
        return invalid(name, value, "String must be non-empty")
    return None


def complaint(parse: Callable[[Any], object]) -> Validator:
    """A validator that passes on what ``parse`` raises as ``ConfigInvalid``."""

    def check(name: str, value: Any) -> str | None:
        try:
            parse(value)
        except ConfigInvalid as error:
            return invalid(name, value, str(error))
        return None

    return check


def unless_null(validator: Validator) -> Validator:
    """``validator`` for all but null, which also stands for a value that could not be parsed: one complaint is enough."""
    return lambda name, value: None if value is None else validator(name, value)


def all_of(*validators: Validator) -> Validator:
    """Every one of ``validators``; the first complaint counts."""

    def check(name: str, value: Any) -> str | None:
        for validator in validators:
            complaint = validator(name, value)
            if complaint is not None:
                return complaint
        return None

    return check
