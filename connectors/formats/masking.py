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

from connectors.entry_points import entries, own_entries
from connectors.errors import ConfigInvalid, Skippable
from connectors.formats.mask_functions import (
    default_of,
    digest_of,
    java_serialized,
    missing_field,
    murmur3_32,
    murmur3_128,
    typed,
    utf16_cut,
    value_bytes,
    value_text,
)
from connectors.java_regex import compile_java, java_replacement
from connectors.options import ConfigKey, ConfigProblem, ConfigType, Importance, Password, invalid, one_of
from connectors.schema import Schema, Type

#: Schema parameter of a column masked by a rule of ``mask.rules``: the rule's name.
MASKED: Final = "millrace.masked"
#: Schema parameter that Debezium sets on masked columns, and the one it sets on truncated ones.
DEBEZIUM_MASKED: Final = "masked"
DEBEZIUM_TRUNCATED: Final = "truncateLength"
#: Entry points of other packages' masks: a name for ``type`` -> a ``Factory``.
ENTRY_POINTS: Final = "millrace.masks"
RULES: Final = "mask.rules"

_JSON: Final = frozenset(("io.debezium.data.Json", "io.debezium.data.Xml"))
_MOST_CHARS: Final = 1_000_000


class Target(NamedTuple):
    """A column that a rule may mask.

    Attributes:
        name: ``database.table.column`` (or whatever the rule's expressions are written for).
        schema: of its field, unmasked.
        length: declared length of a text column in characters, -1 if unknown; Debezium's hashes are cut to it.
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
    """What a rule makes of one column.

    Exactly one of ``convert`` and ``convert_row`` is set, or none: then only the schema changes.

    Attributes:
        rule: the rule's name, as errors and ``MASKED`` show it.
        schema: of the masked field.
        convert: value -> value.
        convert_row: (value, row as it was before any row mask) -> value; may raise ``Skippable`` if a field is missing.
        nulls: whether it is called for None too; else None stays None.
        in_key: whether the message key gets the masked value too (masks that keep different values apart).
        encoded: whether readers are told that it is masked (UMS ``encoded``); not for truncation.
    """

    rule: str
    schema: Schema
    convert: Callable[[Any], Any] | None = None
    convert_row: Callable[[Any, Mapping[str, Any]], Any] | None = None
    nulls: bool = False
    in_key: bool = False
    encoded: bool = True


#: A mask's maker: gets the column and the rule's options (without ``mask.NAME.``, secrets as plain text, ``rule`` = its name).
#: None leaves the column as it is.
Factory = Callable[[Target, Mapping[str, str]], Mask | None]


class _Rule(NamedTuple):
    name: str
    columns: tuple[re.Pattern[str], ...]
    make: Callable[[Target], Mask | None]


@dataclass(frozen=True, slots=True)
class Masks:
    """The rules of one configuration, in order."""

    rules: tuple[_Rule, ...] = ()

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
    found = None
    for name, value in schema.parameters:
        if name == MASKED:
            return value
        if name == DEBEZIUM_MASKED and value == "true":
            found = DEBEZIUM_MASKED
    return found


def split_patterns(text: str) -> list[str]:
    r"""A list of regular expressions as Debezium writes it: separated by commas, ``\,`` is a comma."""
    parts = re.findall(r"(?:[^,\\]|\\.)+", text, re.DOTALL)
    return [part.strip().replace("\\,", ",") for part in parts if part.strip()]


def column_patterns(option: str, text: str) -> tuple[re.Pattern[str], ...]:
    """The expressions of a list, which match whole names in any case.

    Raises:
        ConfigInvalid: one is wrong, or the list is empty.
    """
    try:
        patterns = tuple(
            re.compile(found.pattern, found.flags | re.IGNORECASE)
            for found in (compile_java(part) for part in split_patterns(text))
        )
    except ConfigInvalid as error:
        raise ConfigInvalid(invalid(option, text, str(error))) from None
    if not patterns:
        raise ConfigInvalid(invalid(option, text, "name the columns: regular expressions on database.table.column"))
    return patterns


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
    (re.compile(r"column\.truncate\.to\.(\d+)\.chars", re.ASCII), lambda found: _debezium_truncate(_count(found))),
    (re.compile(r"column\.mask\.with\.(\d+)\.chars", re.ASCII), lambda found: _debezium_chars(_count(found))),
    (
        re.compile(r"column\.mask\.hash\.([^.]+)\.with\.salt\.(.+)"),
        lambda found: _debezium_hash(found[1], found[2], serialized=True),
    ),
    (
        re.compile(r"column\.mask\.hash\.v2\.([^.]+)\.with\.salt\.(.+)"),
        lambda found: _debezium_hash(found[1], found[2], serialized=False),
    ),
)


def _count(found: re.Match[str]) -> int:
    count = int(found[1])
    if count > _MOST_CHARS:
        raise ConfigInvalid(f"{found[0]}: at most {_MOST_CHARS} characters")
    return count


def hide_reason(error: BaseException | str) -> Skippable:
    """What is said instead of an error with a record that was not masked yet: both may hold its values."""
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


def _masked_schema(target: Target, rule: str, *, text: bool) -> Schema:
    """The field's schema with the rule's name; without its default, which would show a real value or be of another type."""
    parameter = (MASKED, rule)
    if text and target.schema.type is not Type.STRING:
        return Schema(Type.STRING, optional=target.schema.optional, doc=target.schema.doc, parameters=(parameter,))
    if text:  # what comes out is no ZonedTimestamp, JSON or ENUM any more
        return replace(target.schema, name=None, version=None, default=None, parameters=(parameter,))
    return replace(target.schema, default=None, parameters=(*target.schema.parameters, parameter))


def _fixed(rule: str, target: Target, value: Any, *, nulls: bool) -> Mask:
    if target.in_key:
        raise ConfigInvalid(
            f"mask {rule} would give all rows of {target.name.rpartition('.')[0]} one key: it can't mask "
            f"{target.name}, a column of the message key; use hash, md5 or murmur there, or "
            "message.key.columns"
        )
    schema = _masked_schema(target, rule, text=False)
    if isinstance(value, dict | list):
        return Mask(rule, schema, lambda _value: value.copy(), nulls=nulls)
    return Mask(rule, schema, lambda _value: value, nulls=nulls)


def make_default(target: Target, options: Mapping[str, str]) -> Mask:
    """A fixed value of the column's type: 0, false, an empty string, 1970-01-01."""
    return _fixed(options["rule"], target, default_of(target.schema), nulls=_nulls(options))


def make_replace(target: Target, options: Mapping[str, str]) -> Mask:
    """The value of ``replacement``, in the column's type."""
    value = typed(_needed(options, "replacement"), target.schema, f"mask {options['rule']} of {target.name}")
    return _fixed(options["rule"], target, value, nulls=_nulls(options))


def make_chars(target: Target, options: Mapping[str, str]) -> Mask:
    """``length`` asterisks."""
    count = _number(options, "length")
    mask = _fixed(options["rule"], target, "*" * count, nulls=_nulls(options))
    return mask._replace(schema=_masked_schema(target, options["rule"], text=True))


def make_truncate(target: Target, options: Mapping[str, str]) -> Mask:
    """The first ``length`` characters."""
    count = _number(options, "length")
    if target.schema.type not in (Type.STRING, Type.BYTES):
        raise ConfigInvalid(f"mask {options['rule']} of {target.name}: only text and bytes can be truncated")
    if target.in_key:
        raise ConfigInvalid(
            f"mask {options['rule']} would give different rows one key: it can't truncate {target.name}, a "
            "column of the message key"
        )
    text = target.schema.type is Type.STRING
    return Mask(
        options["rule"],
        _masked_schema(target, options["rule"], text=text),
        (lambda value: utf16_cut(value, count)) if text else (lambda value: value[:count]),
    )


def make_regex(target: Target, options: Mapping[str, str]) -> Mask:
    """Every match of ``regex`` is replaced by ``replacement``."""
    rule = options["rule"]
    pattern = compile_java(_needed(options, "regex"))
    expand = java_replacement(options.get("replacement", ""), pattern)
    if target.in_key:
        raise ConfigInvalid(
            f"mask {rule} may give different rows one key: it can't mask {target.name}, a column of the "
            "message key; use hash, md5 or murmur there"
        )
    nulls = _nulls(options)

    def convert(value: Any) -> str:
        return pattern.sub(expand, "" if value is None else value_text(value))

    return Mask(rule, _masked_schema(target, rule, text=True), convert, nulls=nulls)


def _hasher(function: Callable[[bytes], str]) -> Factory:
    """A factory for a hash, with its salt: fixed, another field's value, both or none; the salt goes before the value."""

    def make(target: Target, options: Mapping[str, str]) -> Mask:
        rule = options["rule"]
        salt, field = options.get("salt.secret", "").encode(), options.get("salt.field", "")
        schema, nulls = _masked_schema(target, rule, text=True), _nulls(options)
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
            other = row[field]
            return function(
                salt + (b"" if other is None else value_bytes(other)) + (b"" if value is None else value_bytes(value))
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
    return _hasher(lambda data: str(digest(data).hexdigest()))(target, options)


def make_md5(target: Target, options: Mapping[str, str]) -> Mask | None:
    """The MD5 hash, in hexadecimal."""
    return make_hash(target, {**options, "algorithm": "MD5"})


make_murmur: Final = _hasher(lambda data: murmur3_128(data).hex())
make_murmur32: Final = _hasher(lambda data: murmur3_32(data).to_bytes(4, "little").hex())
#: Options that a type needs; they are checked before any column is there.
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "replace": ("replacement",),
    "chars": ("length",),
    "truncate": ("length",),
    "regex": ("regex",),
}

#: The options of one rule, without ``mask.NAME.``; a transform declares them as they are.
RULE_KEYS: Final[tuple[ConfigKey, ...]] = (
    ConfigKey(
        name="columns",
        type=ConfigType.STRING,
        importance=Importance.HIGH,
        doc="Columns to mask: regular expressions, separated by commas, that match the whole of database.table.column in "
        "any case. Only these are masked.",
        example=r"shop\.customers\.(mail|phone)",
    ),
    ConfigKey(
        name="type",
        type=ConfigType.STRING,
        importance=Importance.HIGH,
        doc="How: default (0, false, an empty text, 1970-01-01, by type), replace (with replacement), chars (length "
        "asterisks), truncate (to length characters), regex (every match of regex by replacement), hash (with "
        "algorithm), md5, murmur (MurmurHash3_x64_128, 32 hexadecimal digits), murmur32 (MurmurHash3_x86_32, 8 "
        "digits), the name of an entry point in group millrace.masks, or module:function. Hashes and regex make a "
        "field text, whatever it was.",
        example="md5",
    ),
    ConfigKey(
        name="replacement",
        type=ConfigType.STRING,
        default=None,
        doc="With type=replace: what stands in the field instead, in the column's type. With type=regex: what replaces "
        "each match, with $1 or ${name} for groups.",
        example="***",
    ),
    ConfigKey(
        name="regex",
        type=ConfigType.STRING,
        default=None,
        doc="With type=regex: the expression, in Java's syntax. A value that it doesn't match stays as it is.",
        example=r"(\d{4})\d+",
    ),
    ConfigKey(
        name="length",
        type=ConfigType.INT,
        default=None,
        unit="characters",
        doc="With type=chars and type=truncate: how many characters.",
        example="8",
    ),
    ConfigKey(
        name="algorithm",
        type=ConfigType.STRING,
        default="SHA-256",
        doc="With type=hash: MD5, SHA-1, SHA-256, SHA-512, SHA3-256 ... The field holds it in hexadecimal.",
        example="SHA-512",
    ),
    ConfigKey(
        name="salt.secret",
        type=ConfigType.PASSWORD,
        default=None,
        doc="With the hashes: a fixed text that goes before the value, so that nobody can try values out. It is "
        "secret, so give it as a reference to a config provider.",
        example="${file:/etc/millrace/salts.properties:mail}",
    ),
    ConfigKey(
        name="salt.field",
        type=ConfigType.STRING,
        default=None,
        doc="With the hashes: another field of the same row, whose value goes before this one's (behind salt.secret), so "
        "that equal values in two rows give different hashes.",
        example="id",
    ),
    ConfigKey(
        name="nulls",
        type=ConfigType.STRING,
        default="keep",
        validator=one_of("keep", "mask"),
        doc="Whether a null stays a null (keep), or is masked like an empty text (mask), so that nobody sees which rows "
        "have no value.",
    ),
)


def _nulls(options: Mapping[str, str]) -> bool:
    return options.get("nulls", "keep") == "mask"


def _needed(options: Mapping[str, str], name: str) -> str:
    found = options.get(name)
    if found is None:
        raise ConfigInvalid(f"mask {options['rule']}: type={options.get('type', '')} needs {name}")
    return found


def _number(options: Mapping[str, str], name: str) -> int:
    text = _needed(options, name)
    if not text.strip().isdecimal() or int(text) > _MOST_CHARS:
        raise ConfigInvalid(f"mask {options['rule']}: {name}={text!r} is no number from 0 to {_MOST_CHARS}")
    return int(text)


def _factory(name: str, rule: str) -> Factory:
    """What a ``type`` means; may read package metadata and import a module (some milliseconds)."""
    found: Any = None
    try:
        entry = next((entry for entry in entries(ENTRY_POINTS) if entry.name == name), None)
        if entry is not None:
            found = entry.load()
        elif ":" in name or "." in name:
            module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
            found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigInvalid(f"mask {rule}: type={name} can't be loaded: {error}") from None
    if not callable(found):
        types = ", ".join(own_entries(ENTRY_POINTS))
        raise ConfigInvalid(
            f"mask {rule}: there is no type {name!r}; types are {types}, other entry points of the "
            f"group {ENTRY_POINTS}, and module:function"
        )
    return found  # type: ignore[no-any-return]  # what it returns is checked where it is called


def rule(name: str, options: Mapping[str, Any]) -> _Rule:
    """One rule from its options (raw texts or parsed values).

    Raises:
        ConfigInvalid: an option is missing or wrong.
    """
    texts = {
        key: each.value if isinstance(each, Password) else str(each)
        for key, each in options.items()
        if each is not None
    }
    texts["rule"] = name
    for key in ("columns", "type"):
        _needed({"type": "", **texts} if key == "columns" else texts, key)
    kind = texts["type"] = texts["type"].strip()
    make = _factory(kind, name)
    for key in _REQUIRED.get(kind, ()):
        _needed(texts, key)
        if key == "length":
            _number(texts, key)
    if texts.get("nulls", "keep") not in ("keep", "mask"):
        raise ConfigInvalid(f"mask {name}: nulls={texts['nulls']!r}; it is keep or mask")
    if kind == "hash":
        digest_of(texts.get("algorithm") or "SHA-256")
    if kind == "regex":
        java_replacement(texts.get("replacement", ""), compile_java(texts["regex"]))
    patterns = column_patterns(f"mask.{name}.columns", texts["columns"])

    def checked(target: Target) -> Mask | None:
        mask = make(target, texts)
        if mask is not None and not isinstance(mask, Mask):
            raise ConfigInvalid(f"mask {name}: type={kind} returned {type(mask).__name__}, not a Mask")
        if mask is not None and target.in_key and not mask.in_key:
            raise ConfigInvalid(
                f"mask {name} may give different rows one key: type={kind} doesn't say that it keeps different "
                f"values apart (Mask.in_key), so it can't mask {target.name}, a column of the message key"
            )
        return mask

    return _Rule(name, patterns, checked)


def rule_names(raw: Mapping[str, str]) -> list[str]:
    """The items of ``mask.rules``, each once, in order."""
    return list(dict.fromkeys(item.strip() for item in raw.get(RULES, "").split(",") if item.strip()))


def _rules(raw: Mapping[str, str], *, debezium: bool) -> Iterable[tuple[str, Callable[[], _Rule]]]:
    """(property to blame, how to make the rule) in order of precedence."""
    for name in rule_names(raw):
        prefix = f"mask.{name}."
        own = {key[len(prefix) :]: value for key, value in raw.items() if key.startswith(prefix)}
        yield f"{prefix}type", lambda name=name, own=own: rule(name, own)  # type: ignore[misc]
    for pattern, make in _DEBEZIUM if debezium else ():
        for key, value in raw.items():
            found = pattern.fullmatch(key)
            if found is not None:
                yield (
                    key,
                    lambda key=key, value=value, make=make, found=found: _Rule(  # type: ignore[misc]
                        key, column_patterns(key.partition(".with.salt.")[0], value), make(found)
                    ),
                )


def parse_rules(raw: Mapping[str, str], *, debezium: bool = True) -> Masks:
    """The rules of a configuration, references resolved; other properties are passed over.

    Args:
        raw: the properties.
        debezium: whether Debezium's options count too.

    Raises:
        ConfigInvalid: one of them is wrong; see ``problems`` for all complaints.
    """
    return Masks(tuple(make() for _, make in _rules(raw, debezium=debezium)))


def problems(raw: Mapping[str, str], *, debezium: bool = True) -> list[ConfigProblem]:
    """Every complaint about the rules of a configuration, for validation; never raises. Arguments as ``parse_rules``."""
    found: list[ConfigProblem] = []
    if not debezium:
        found += [
            ConfigProblem(
                name,
                f"{name} masks nothing here: it is an option of the MySQL connector. Use {RULES}, see docs/masking.md",
            )
            for name in raw
            if is_debezium_option(name)
        ]
    for name, make in _rules(raw, debezium=debezium):
        try:
            make()
        except ConfigInvalid as error:
            found.append(ConfigProblem(name, str(error)))
    names = rule_names(raw)
    known = {key.name for key in RULE_KEYS}
    for name in raw:
        parts = name.split(".", 2)
        if parts[0] != "mask" or name == RULES:
            continue
        if len(parts) < 3:
            found.append(
                ConfigProblem(
                    name, f"{name} is no option; an option of a rule is mask.NAME.OPTION, where {RULES} has the names"
                )
            )
        elif parts[1] not in names:
            found.append(
                ConfigProblem(name, f"{name}: {RULES} doesn't name a rule {parts[1]!r}, so nothing is masked by it")
            )
        elif parts[2] not in known and raw.get(f"mask.{parts[1]}.type", "").strip() in own_entries(ENTRY_POINTS):
            found.append(
                ConfigProblem(
                    name, f"{name}: a mask rule has no option {parts[2]!r}; it has {', '.join(sorted(known))}"
                )
            )
    return found


#: What a source connector declares; the options of each rule are ``mask.NAME.`` and the names of ``RULE_KEYS``.
SOURCE_KEYS: Final[tuple[ConfigKey, ...]] = (
    ConfigKey(
        name=RULES,
        type=ConfigType.LIST,
        default=[],
        importance=Importance.LOW,
        group="Masking",
        display_name="Mask rules",
        doc="Names of mask rules, in order of precedence. Rule NAME is written as mask.NAME.columns, mask.NAME.type and "
        "the type's options: replacement, regex, length, algorithm, salt.secret, salt.field, nulls; see "
        "docs/masking.md.",
        example="mail,card",
    ),
)
