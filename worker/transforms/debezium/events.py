"""Code that Debezium's transforms share: it classifies events, and reads structs and options.

Source: io.debezium.transforms.SmtManager and io.debezium.config of Debezium 3.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, cast

from connectors.errors import Skippable
from connectors.options import ConfigKey, ConfigType, Importance, Width, all_of, invalid, one_of
from connectors.schema import Field, Schema, Type
from worker.transforms.base import not_a_struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: The version of Debezium whose behaviour is meant, unless a transform says otherwise.
DEBEZIUM_VERSION: Final = "3.5.0.Final"

#: How names of schemas or fields are fitted to what Avro takes.
Adjustment = Literal["none", "avro", "avro_unicode"]

_ENVELOPE: Final = ".Envelope"
_SCHEMA_CHANGES: Final = (".SchemaChangeValue", ".SchemaChangeKey")


def is_envelope(schema: Schema | None) -> bool:
    """Whether values of the schema are change events."""
    return schema is not None and schema.name is not None and schema.name.endswith(_ENVELOPE)


def is_schema_change(schema: Schema | None) -> bool:
    """Whether values of the schema are schema change events."""
    return schema is not None and schema.name is not None and schema.name.endswith(_SCHEMA_CHANGES)


def field_of(schema: Schema, name: str) -> Field:
    """A struct's field.

    Raises:
        Skippable: it has none of that name.
    """
    field = schema.field(name)
    if field is None:
        raise Skippable(f"{name} is not a valid field name")
    return field


def require_struct(value: Any, schema: Schema | None, purpose: str) -> dict[str, Any]:
    """The value, which must be a struct.

    Raises:
        Skippable: it isn't.
    """
    if schema is None or schema.type is not Type.STRUCT or value is None:
        raise not_a_struct(value, schema, purpose)
    return cast("dict[str, Any]", value)


def or_default(value: Any, schema: Schema) -> Any:
    """The value, or for a null the schema's default."""
    return schema.default if value is None else value


def validate_enumerated(*allowed: str) -> Callable[[str, str | None], str | None]:
    """Debezium takes its enumerations in any case and with blanks around them."""
    check = one_of(*allowed)

    def validate(name: str, value: str | None) -> str | None:
        return check(name, None if value is None else value.strip().lower())

    return validate


def no_empty_items(name: str, value: Sequence[str] | None) -> str | None:
    """A list that has an item and none that is empty."""
    if not value or "" in value:
        return invalid(name, value, "Empty string element(s) not permitted")
    return None


def _no_blanks(name: str, value: Sequence[str] | None) -> str | None:
    if any(" " in item for item in value or ()):
        return invalid(name, value, "Element(s) containing space not permitted")
    return None


#: Names in a list: some, none of them empty or with a blank inside.
plain_items: Final = all_of(no_empty_items, _no_blanks)


def adjustment_key(name: str, subject: str, display: str, *, group: str | None = None) -> ConfigKey:
    """The declaration of an option whose value is an ``Adjustment``.

    Args:
        name: the property.
        subject: the names that are adjusted, for the documentation.
        display: its label.
        group: its heading.
    """
    return ConfigKey(
        name=name,
        type=ConfigType.STRING,
        default="none",
        validator=validate_enumerated("none", "avro", "avro_unicode"),
        importance=Importance.LOW,
        width=Width.MEDIUM,
        display_name=display,
        group=group,
        doc=f"How {subject} are fitted to what Avro takes: none (as they are), avro (an underscore for what it does "
        "not take) or avro_unicode (_uXXXX for it).",
    )


def parse_adjustment(value: str) -> Adjustment:
    """The parsed value of such an option."""
    return cast("Adjustment", value.strip().lower())
