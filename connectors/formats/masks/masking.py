"""Masking of columns: rules from a configuration, and what a rule makes of one column. Pure, nothing blocks.

Two ways to write rules, which may stand together; where a column is named by several, the first counts, ``mask.rules`` before
Debezium's options:

- Debezium's, one property each, values are lists of regular expressions on ``database.table.column``:
  ``column.truncate.to.N.chars``, ``column.mask.with.N.chars``, ``column.mask.hash.ALGORITHM.with.salt.SALT`` and
  ``column.mask.hash.v2.ALGORITHM.with.salt.SALT``. As there they touch only text columns and never keys.
- ``mask.rules=a,b`` with ``mask.a.columns``, ``mask.a.type`` and the type's options (``RULE_KEYS``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, NamedTuple

from connectors.entry_points import list_entries, own_entries
from connectors.errors import ConfigInvalid, Skippable
from connectors.formats.masks.mask_functions import (
    default_of,
    digest_of,
    java_serialized,
    missing_field,
    murmur3_32,
    murmur3_128,
    parse_typed,
    utf16_cut,
    value_bytes,
    value_text,
)
from connectors.formats.masks.options import RULE_KEYS, RULES
from connectors.formats.masks.patterns import column_patterns
from connectors.formats.masks.substitution import make_substitution
from connectors.java_regex import compile_java, java_replacement
from connectors.linear_regex import PatternInvalid
from connectors.options import ConfigProblem, Password
from connectors.schema import Schema, Type

#: Schema parameter of a column masked by a rule of ``mask.rules``: the rule's name.
MASKED: Final = "millrace.masked"
#: Schema parameter that Debezium sets on masked columns, and the one it sets on truncated ones.
DEBEZIUM_MASKED: Final = "masked"
DEBEZIUM_TRUNCATED: Final = "truncateLength"
#: Entry points of other packages' masks: a name for ``type`` -> a ``Factory``.
ENTRY_POINTS: Final = "millrace.masks"

_JSON: Final = frozenset(("io.debezium.data.Json", "io.debezium.data.Xml"))
_MOST_CHARS: Final = 1_000_000
#: A value that consists of references to config providers: a rule gets it where no provider has the key.
_REFERENCES: Final = re.compile(r"\s*(?:\$\{[^{}:]+:[^{}]*\}\s*)+")


class Target(NamedTuple):
    """A column that a rule may mask.

    Attributes:
        name: ``database.table.column`` (or whatever the rule's expressions are written for).
        schema: of its field, unmasked.
        length: declared length in characters of a column with text, -1 if unknown; Debezium's hashes are cut to it.
        text: whether Debezium takes it as text (CHAR, VARCHAR, the TEXTs, ENUM, SET). None: tell by the schema.
        in_key: whether the column is part of the message key.
        fields: names of the row's fields, to check ``salt.field``; () if unknown.
    """

    name: str
    schema: Schema
    length: int = -1
    text: bool | None = None
    in_key: bool = False
    fields: tuple[str, ...] = ()


class Mask(NamedTuple):
    """The result of a rule for one column.

    Exactly one of ``convert`` and ``convert_row`` is set, or none: then only the schema changes.

    Attributes:
        rule: the rule's name, as errors and ``MASKED`` show it.
        schema: of the masked field.
        convert: value -> value.
        convert_row: (value, row as it was before any row mask) -> value; may raise ``Skippable`` if a field is missing.
        nulls: whether it is called for None too; else None stays None.
        in_key: whether the message key gets the masked value too (masks that keep different values apart).
        encoded: whether messages say that it is masked (UMS ``encoded``); not for truncation.
    """

    rule: str
    schema: Schema
    convert: Callable[[Any], Any] | None = None
    convert_row: Callable[[Any, Mapping[str, Any]], Any] | None = None
    nulls: bool = False
    in_key: bool = False
    encoded: bool = True


#: A mask's maker: gets the column and the rule's options (without ``mask.NAME.``, secrets as plain text, ``rule`` = its
#: name).
#: None leaves the column as it is.
Factory = Callable[[Target, Mapping[str, str]], Mask | None]


class _MaskRule(NamedTuple):
    name: str
    columns: tuple[re.Pattern[str], ...]
    make: Callable[[Target], Mask | None]


@dataclass(frozen=True, slots=True)
class Masks:
    """The rules of one configuration, in order."""

    rules: tuple[_MaskRule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def for_column(self, target: Target) -> Mask | None:
        """The mask of a column: from the first rule that names it; None for none.

        Raises:
            ConfigInvalid: the rule can't mask such a column (which stops a task: to let it through would give it away).
        """
        for rule in self.rules:
            if any(pattern.fullmatch(target.name) for pattern in rule.columns):
                return rule.make(target)
        return None

    def rule_of(self, column: str) -> str | None:
        """The name of the first rule that names a column; None for none."""
        return next(
            (rule.name for rule in self.rules if any(pattern.fullmatch(column) for pattern in rule.columns)), None
        )


def row_masker(masks: Sequence[tuple[str, Mask]]) -> Callable[[dict[str, Any]], None] | None:
    """A function that applies the row masks among ``masks`` (field name, mask) to a row, in place; None if there are none.

    All of them see the row as it was before. A field that the row doesn't have (a partial image) is left out.
    """
    steps = [(name, mask.convert_row, mask.nulls) for name, mask in masks if mask.convert_row is not None]
    if not steps:
        return None

    def apply(row: dict[str, Any]) -> None:
        changed = [
            (name, convert(row[name], row))
            for name, convert, nulls in steps
            if name in row and (nulls or row[name] is not None)
        ]
        row.update(changed)

    return apply


def masked_by(schema: Schema) -> str | None:
    """The rule that masked a field of this schema (``masked`` for one of Debezium's), or None."""
    rule_name = None
    for name, value in schema.parameters:
        if name == MASKED:
            return value
        if name == DEBEZIUM_MASKED and value == "true":
            rule_name = DEBEZIUM_MASKED
    return rule_name


# Debezium's masks.


def _is_text(target: Target) -> bool:
    if target.text is not None:
        return target.text
    return target.schema.type is Type.STRING and target.schema.name not in _JSON


def _with_parameter(schema: Schema, name: str, value: str) -> Schema:
    return replace(schema, parameters=(*schema.parameters, (name, value)))


def _debezium_chars(count: int) -> Callable[[Target], Mask]:
    def make(target: Target) -> Mask:
        stars = "*" * count
        schema = _with_parameter(target.schema, DEBEZIUM_MASKED, "true")
        if not _is_text(target):
            return Mask("chars", schema, encoded=False)  # as Debezium: says masked, and is not
        return Mask("chars", schema, lambda _value: stars, nulls=True)

    return make


def _debezium_truncate(count: int) -> Callable[[Target], Mask | None]:
    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return utf16_cut(value, count)
        return value[:count] if isinstance(value, bytes) else value

    def make(target: Target) -> Mask | None:
        if 0 <= target.length <= count:
            return None
        return Mask("truncate", _with_parameter(target.schema, DEBEZIUM_TRUNCATED, str(count)), cut, encoded=False)

    return make


def _debezium_hash(algorithm: str, salt: str, *, serialized: bool) -> Callable[[Target], Mask]:
    digest, salted = digest_of(algorithm), salt.encode()

    def make(target: Target) -> Mask:
        schema = _with_parameter(target.schema, DEBEZIUM_MASKED, "true")
        if not _is_text(target):
            return Mask("hash", schema, encoded=False)
        length = target.length if target.length > 0 else None

        def convert(value: Any) -> Any:
            if not isinstance(value, str):
                return None
            data = java_serialized(value) if serialized else value.encode("utf-8", "surrogatepass")
            return digest(salted + data).hexdigest()[:length]

        return Mask("hash", schema, convert)

    return make


_DEBEZIUM: Final = (
    (re.compile(r"column\.truncate\.to\.(\d+)\.chars", re.ASCII), lambda match: _debezium_truncate(_read_count(match))),
    (re.compile(r"column\.mask\.with\.(\d+)\.chars", re.ASCII), lambda match: _debezium_chars(_read_count(match))),
    (
        re.compile(r"column\.mask\.hash\.([^.]+)\.with\.salt\.(.+)"),
        lambda match: _debezium_hash(match[1], match[2], serialized=True),
    ),
    (
        re.compile(r"column\.mask\.hash\.v2\.([^.]+)\.with\.salt\.(.+)"),
        lambda match: _debezium_hash(match[1], match[2], serialized=False),
    ),
)


def _read_count(match: re.Match[str]) -> int:
    count = int(match[1])
    if count > _MOST_CHARS:
        raise ConfigInvalid(f"{match[0]}: at most {_MOST_CHARS} characters")
    return count


def hide_reason(error: BaseException | str) -> Skippable:
    """Return an error without values, for an error with a record that was not masked yet: both may hold its values."""
    kind = "The record is bad" if isinstance(error, str) else type(error).__name__
    return Skippable(
        f"{kind}: neither the reason nor the record is shown, because columns are masked and both may hold their "
        "values (docs/masking.md)"
    )


def has_rules(raw: Mapping[str, str]) -> bool:
    """Whether a connector's configuration masks columns at the source."""
    return bool(rule_names(raw)) or any(is_debezium_option(name) for name in raw)


def is_debezium_option(name: str) -> bool:
    """Whether a property is one of Debezium's mask options, which carry their arguments in their names."""
    return any(pattern.fullmatch(name) for pattern, _ in _DEBEZIUM)


# Our own masks.


def _masked_schema(target: Target, rule: str, *, as_string: bool) -> Schema:
    """The field's schema with the rule's name; without its default, which would show a real value or be of another type."""
    parameter = (MASKED, rule)
    if as_string and target.schema.type is not Type.STRING:
        return Schema(Type.STRING, optional=target.schema.optional, doc=target.schema.doc, parameters=(parameter,))
    if as_string:  # what comes out is no ZonedTimestamp, JSON or ENUM any more
        return replace(target.schema, name=None, version=None, default=None, parameters=(parameter,))
    return replace(target.schema, default=None, parameters=(*target.schema.parameters, parameter))


def _make_fixed(rule: str, target: Target, value: Any, *, nulls: bool) -> Mask:
    if target.in_key:
        raise ConfigInvalid(
            f"mask {rule} would give all rows of {target.name.rpartition('.')[0]} one key: it can't mask "
            f"{target.name}, a column of the message key; use hash, md5 or murmur there, or "
            "message.key.columns"
        )
    schema = _masked_schema(target, rule, as_string=False)
    if isinstance(value, dict | list):
        return Mask(rule, schema, lambda _value: value.copy(), nulls=nulls)
    return Mask(rule, schema, lambda _value: value, nulls=nulls)


def make_default(target: Target, options: Mapping[str, str]) -> Mask:
    """A fixed value of the column's type: 0, false, an empty string, 1970-01-01."""
    return _make_fixed(options["rule"], target, default_of(target.schema), nulls=_masks_nulls(options))


def make_replace(target: Target, options: Mapping[str, str]) -> Mask:
    """The value of ``replacement``, in the column's type."""
    value = parse_typed(
        _required_option(options, "replacement"), target.schema, f"mask {options['rule']} of {target.name}"
    )
    return _make_fixed(options["rule"], target, value, nulls=_masks_nulls(options))


def make_chars(target: Target, options: Mapping[str, str]) -> Mask:
    """``length`` asterisks."""
    count = _read_number(options, "length")
    mask = _make_fixed(options["rule"], target, "*" * count, nulls=_masks_nulls(options))
    return mask._replace(schema=_masked_schema(target, options["rule"], as_string=True))


def make_truncate(target: Target, options: Mapping[str, str]) -> Mask:
    """The first ``length`` characters."""
    count = _read_number(options, "length")
    if target.schema.type not in (Type.STRING, Type.BYTES):
        raise ConfigInvalid(f"mask {options['rule']} of {target.name}: only text and bytes can be truncated")
    if target.in_key:
        raise ConfigInvalid(
            f"mask {options['rule']} would give different rows one key: it can't truncate {target.name}, a "
            "column of the message key"
        )
    is_string = target.schema.type is Type.STRING
    return Mask(
        options["rule"],
        _masked_schema(target, options["rule"], as_string=is_string),
        (lambda value: utf16_cut(value, count)) if is_string else (lambda value: value[:count]),
    )


def _read_substitution(options: Mapping[str, str]) -> Callable[[str], str]:
    source = _required_option(options, "regex")
    pattern = compile_java(source)
    try:
        return make_substitution(pattern, java_replacement(options.get("replacement", ""), pattern))
    except PatternInvalid as error:
        raise ConfigInvalid(f"mask {options['rule']}: regex={source!r} can't be used: {error}") from None


def make_regex(target: Target, options: Mapping[str, str]) -> Mask:
    """Every match of ``regex`` is replaced by ``replacement``."""
    rule = options["rule"]
    substitute = _read_substitution(options)
    if target.in_key:
        raise ConfigInvalid(
            f"mask {rule} may give different rows one key: it can't mask {target.name}, a column of the "
            "message key; use hash, md5 or murmur there"
        )
    nulls = _masks_nulls(options)

    def convert(value: Any) -> str:
        return substitute("" if value is None else value_text(value))

    return Mask(rule, _masked_schema(target, rule, as_string=True), convert, nulls=nulls)


def _make_hasher(function: Callable[[bytes], str]) -> Factory:
    """A factory for a hash, with its salt: fixed, another field's value, both or none; the salt goes before the value."""

    def make(target: Target, options: Mapping[str, str]) -> Mask:
        rule = options["rule"]
        salt, field = options.get("salt.secret", "").encode(), options.get("salt.field", "")
        schema, nulls = _masked_schema(target, rule, as_string=True), _masks_nulls(options)
        if not field:

            def convert(value: Any) -> str:
                return function(salt + (b"" if value is None else value_bytes(value)))

            return Mask(rule, schema, convert, nulls=nulls, in_key=True)
        if target.fields and field not in target.fields:
            raise ConfigInvalid(
                f"mask {rule} of {target.name}: there is no field {field!r} for salt.field; there are "
                f"{', '.join(target.fields)}"
            )

        def convert_row(value: Any, row: Mapping[str, Any]) -> str:
            if field not in row:
                raise missing_field(rule, field)
            salt_value = row[field]
            return function(
                salt
                + (b"" if salt_value is None else value_bytes(salt_value))
                + (b"" if value is None else value_bytes(value))
            )

        if target.in_key:
            raise ConfigInvalid(
                f"mask {rule}: salt.field can't be used for {target.name}, a column of the message key, which "
                "would change with the other field; use salt.secret"
            )
        return Mask(rule, schema, convert_row=convert_row, nulls=nulls)

    return make


def make_hash(target: Target, options: Mapping[str, str]) -> Mask | None:
    """The hash of ``algorithm``, in hexadecimal."""
    digest = digest_of(options.get("algorithm") or "SHA-256")
    return _make_hasher(lambda data: str(digest(data).hexdigest()))(target, options)


def make_md5(target: Target, options: Mapping[str, str]) -> Mask | None:
    """The MD5 hash, in hexadecimal."""
    return make_hash(target, {**options, "algorithm": "MD5"})


make_murmur: Final = _make_hasher(lambda data: murmur3_128(data).hex())
make_murmur32: Final = _make_hasher(lambda data: murmur3_32(data).to_bytes(4, "little").hex())
#: Options that a type needs; they are checked before any column is there.
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "replace": ("replacement",),
    "chars": ("length",),
    "truncate": ("length",),
    "regex": ("regex",),
}


def _masks_nulls(options: Mapping[str, str]) -> bool:
    return options.get("nulls", "keep") == "mask"


def _required_option(options: Mapping[str, str], name: str) -> str:
    setting = options.get(name)
    if setting is None:
        raise ConfigInvalid(f"mask {options['rule']}: type={options.get('type', '')} needs {name}")
    return setting


def _read_number(options: Mapping[str, str], name: str) -> int:
    digits = _required_option(options, name)
    if not digits.strip().isdecimal() or int(digits) > _MOST_CHARS:
        raise ConfigInvalid(f"mask {options['rule']}: {name}={digits!r} is no number from 0 to {_MOST_CHARS}")
    return int(digits)


def _load_factory(name: str, rule: str) -> Factory:
    """Return the factory of a ``type``; may read package metadata and import a module (some milliseconds)."""
    factory: Any = None
    try:
        entry = next((entry for entry in list_entries(ENTRY_POINTS) if entry.name == name), None)
        if entry is not None:
            factory = entry.load()
        elif ":" in name or "." in name:
            module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
            factory = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigInvalid(f"mask {rule}: type={name} can't be loaded: {error}") from None
    if not callable(factory):
        types = ", ".join(own_entries(ENTRY_POINTS))
        raise ConfigInvalid(
            f"mask {rule}: there is no type {name!r}; types are {types}, other entry points of the "
            f"group {ENTRY_POINTS}, and module:function"
        )
    return factory  # type: ignore[no-any-return]  # what it returns is checked where it is called


def make_rule(name: str, options: Mapping[str, Any]) -> _MaskRule:
    """One rule from its options (raw strings or parsed values).

    Raises:
        ConfigInvalid: an option is missing or wrong.
    """
    strings = {
        key: option.value if isinstance(option, Password) else str(option)
        for key, option in options.items()
        if option is not None
    }
    strings["rule"] = name
    for key in ("columns", "type"):
        if key not in strings:
            raise ConfigInvalid(f"mask {name}: it needs {key}")
    salt = strings.get("salt.secret", "")
    if _REFERENCES.fullmatch(salt):
        # Whoever may read the configuration could try values out with it.
        raise ConfigInvalid(
            f"mask {name}: {salt} in salt.secret has no value: check the provider's name (config.providers), the path and "
            "the key"
        )
    kind = strings["type"] = strings["type"].strip()
    make = _load_factory(kind, name)
    for key in _REQUIRED.get(kind, ()):
        _required_option(strings, key)
        if key == "length":
            _read_number(strings, key)
    if strings.get("nulls", "keep") not in ("keep", "mask"):
        raise ConfigInvalid(f"mask {name}: nulls={strings['nulls']!r}; it is keep or mask")
    if kind == "hash":
        digest_of(strings.get("algorithm") or "SHA-256")
    if kind == "regex":
        _read_substitution(strings)
    patterns = column_patterns(f"mask.{name}.columns", strings["columns"])

    def checked(target: Target) -> Mask | None:
        mask = make(target, strings)
        if mask is not None and not isinstance(mask, Mask):
            raise ConfigInvalid(f"mask {name}: type={kind} returned {type(mask).__name__}, not a Mask")
        if mask is not None and target.in_key and not mask.in_key:
            raise ConfigInvalid(
                f"mask {name} may give different rows one key: type={kind} doesn't say that it keeps different "
                f"values apart (Mask.in_key), so it can't mask {target.name}, a column of the message key"
            )
        return mask

    return _MaskRule(name, patterns, checked)


def rule_names(raw: Mapping[str, str]) -> list[str]:
    """The items of ``mask.rules``, each once, in order."""
    return list(dict.fromkeys(item.strip() for item in raw.get(RULES, "").split(",") if item.strip()))


def _iterate_rules(raw: Mapping[str, str], *, debezium: bool) -> Iterable[tuple[str, Callable[[], _MaskRule]]]:
    """(property to blame, how to make the rule) in order of precedence."""
    for name in rule_names(raw):
        prefix = f"mask.{name}."
        rule_options = {key[len(prefix) :]: value for key, value in raw.items() if key.startswith(prefix)}
        yield f"{prefix}type", lambda name=name, rule_options=rule_options: make_rule(name, rule_options)  # type: ignore[misc]
    for pattern, make in _DEBEZIUM if debezium else ():
        for key, value in raw.items():
            match = pattern.fullmatch(key)
            if match is not None:
                yield (
                    key,
                    lambda key=key, value=value, make=make, match=match: _MaskRule(  # type: ignore[misc]
                        key, column_patterns(key.partition(".with.salt.")[0], value), make(match)
                    ),
                )


def parse_rules(raw: Mapping[str, str], *, debezium: bool = True) -> Masks:
    """The rules of a configuration, references resolved; other properties are passed over.

    Args:
        raw: the properties.
        debezium: whether Debezium's options count too.

    Raises:
        ConfigInvalid: one of them is wrong; see ``find_problems`` for all complaints.
    """
    return Masks(tuple(make() for _, make in _iterate_rules(raw, debezium=debezium)))


def find_problems(raw: Mapping[str, str], *, debezium: bool = True) -> list[ConfigProblem]:
    """Every complaint about the rules of a configuration, for validation; never raises. Arguments as ``parse_rules``."""
    complaints: list[ConfigProblem] = []
    if not debezium:
        complaints += [
            ConfigProblem(
                name,
                f"{name} masks nothing here: it is an option of the MySQL connector. Use {RULES}, see docs/masking.md",
            )
            for name in raw
            if is_debezium_option(name)
        ]
    for name, make in _iterate_rules(raw, debezium=debezium):
        try:
            make()
        except ConfigInvalid as error:
            complaints.append(ConfigProblem(name, str(error)))
    names = rule_names(raw)
    option_names = {key.name for key in RULE_KEYS}
    for name in raw:
        parts = name.split(".", 2)
        if parts[0] != "mask" or name == RULES:
            continue
        if len(parts) < 3:
            complaints.append(
                ConfigProblem(
                    name, f"{name} is no option; an option of a rule is mask.NAME.OPTION, where {RULES} has the names"
                )
            )
        elif parts[1] not in names:
            complaints.append(
                ConfigProblem(name, f"{name}: {RULES} doesn't name a rule {parts[1]!r}, so nothing is masked by it")
            )
        elif parts[2] not in option_names and raw.get(f"mask.{parts[1]}.type", "").strip() in own_entries(ENTRY_POINTS):
            complaints.append(
                ConfigProblem(
                    name, f"{name}: a mask rule has no option {parts[2]!r}; it has {', '.join(sorted(option_names))}"
                )
            )
    return complaints
