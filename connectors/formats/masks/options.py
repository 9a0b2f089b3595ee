"""The options of masks: what a source connector declares, and what each rule has."""

from __future__ import annotations

from typing import Final

from connectors.options import ConfigKey, ConfigType, Importance, one_of

RULES: Final = "mask.rules"

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
        doc="With type=replace: the value of the field instead, in the column's type. With type=regex: what replaces "
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
        doc="With the hashes: a fixed text that goes before the value, so that no one can try values out. It is "
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
        doc="Whether a null stays a null (keep), or is masked like an empty text (mask), so that no one sees which rows "
        "have no value.",
    ),
)

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
