"""The form of a generated row: field specifications, the built-in ones, and their schemas and values."""

from __future__ import annotations

import string
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from connectors import schema as types
from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from connectors.schema import Schema

#: Times in rows start here and grow by a millisecond with each record: 2020-09-13T12:26:40Z.
EPOCH_MS: Final = 1_600_000_000_000
#: Fields every row starts with: they tell a verifier which record it has.
ID, PARTITION, SEQUENCE, PAYLOAD = "id", "partition", "sequence", "payload"
_ALPHABET: Final = string.ascii_letters + string.digits + " "
#: A row fits into a record, and what rows repeat fits into memory.
_MOST_LENGTH: Final = 10_000_000
_MOST_SCALE: Final = 100
_BITS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
#: What values of the types may be given in JSON.
_LISTED: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "string": (str,),
    "float": (int, float),
    "double": (int, float),
    "date": (int,),
    "time": (int,),
    "timestamp": (int,),
}
_PLAIN: Final = {
    "boolean": types.BOOLEAN,
    "int8": types.INT8,
    "int16": types.INT16,
    "int32": types.INT32,
    "int64": types.INT64,
    "float": types.FLOAT32,
    "double": types.FLOAT64,
    "string": types.STRING,
    "bytes": types.BYTES,
}

TypeName = Literal[
    "boolean",
    "int8",
    "int16",
    "int32",
    "int64",
    "float",
    "double",
    "string",
    "bytes",
    "decimal",
    "date",
    "time",
    "timestamp",
    "struct",
]


class FieldSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One field of a generated row.

    Attributes:
        name: the field's name.
        type: a type of Connect's data model, a logical type, or ``struct``.
        min: the smallest value of a number; for ``date``, ``time`` and ``timestamp`` in the type's own unit.
        max: the largest one.
        length: characters of a ``string``, bytes of ``bytes``.
        scale: digits after the point of a ``decimal``.
        values: choose among these instead.
        prefix: of a ``string``: this and a number from ``min`` to ``max``.
        nulls: share of nulls, 0 to 1; above 0 the field is optional.
        fields: members of a ``struct``.
    """

    name: str
    type: TypeName
    min: float | None = None
    max: float | None = None
    length: int = 12
    scale: int = 2
    values: tuple[Any, ...] = ()
    prefix: str | None = None
    nulls: float = 0.0
    fields: tuple[FieldSpec, ...] = ()


class RowSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A generated row.

    Attributes:
        name: the schema's name.
        fields: its fields, after the ones that every row has.
    """

    name: str
    fields: tuple[FieldSpec, ...]


_STATES: Final = tuple(f"State_{number}" for number in range(10))
_CITIES: Final = tuple(f"City_{number}" for number in range(100))
#: The quick starts of Confluent's connector of the same name, by its field names.
BUILT_IN: Final = {
    "orders": RowSpec(
        name="orders",
        fields=(
            FieldSpec(name="ordertime", type="timestamp"),
            FieldSpec(name="orderid", type="int32", min=0, max=1_000_000),
            FieldSpec(name="itemid", type="string", prefix="Item_", min=0, max=999),
            FieldSpec(name="orderunits", type="double", min=0, max=10),
            FieldSpec(
                name="address",
                type="struct",
                fields=(
                    FieldSpec(name="city", type="string", values=_CITIES),
                    FieldSpec(name="state", type="string", values=_STATES),
                    FieldSpec(name="zipcode", type="int64", min=10_000, max=99_999),
                ),
            ),
        ),
    ),
    "users": RowSpec(
        name="users",
        fields=(
            FieldSpec(name="registertime", type="timestamp"),
            FieldSpec(name="userid", type="string", prefix="User_", min=1, max=9),
            FieldSpec(name="regionid", type="string", prefix="Region_", min=1, max=9),
            FieldSpec(name="gender", type="string", values=("MALE", "FEMALE", "OTHER")),
        ),
    ),
    "pageviews": RowSpec(
        name="pageviews",
        fields=(
            FieldSpec(name="viewtime", type="timestamp"),
            FieldSpec(name="userid", type="string", prefix="User_", min=1, max=9),
            FieldSpec(name="pageid", type="string", prefix="Page_", min=10, max=99),
        ),
    ),
}


def row_spec(source: str) -> RowSpec:
    """The specification that the option ``schema`` names or holds.

    Raises:
        ConfigInvalid: it is neither a built-in name nor a valid specification.
    """
    built_in = BUILT_IN.get(source.strip().lower())
    if built_in is not None:
        return built_in
    if not source.lstrip().startswith("{"):
        raise ConfigInvalid(f"Neither one of {', '.join(BUILT_IN)} nor a JSON object with name and fields")
    try:
        spec = msgspec.json.decode(source, type=RowSpec)
    except msgspec.MsgspecError as error:
        raise ConfigInvalid(f"Not a row specification: {error}") from error
    _check_fields(spec.fields, "")
    reserved_names = {ID, PARTITION, SEQUENCE, PAYLOAD} & {field.name for field in spec.fields}
    if reserved_names:
        raise ConfigInvalid(f"Every row has {', '.join(sorted(reserved_names))} already; choose other names")
    return spec


def _check_fields(fields: Sequence[FieldSpec], where: str) -> None:
    if not fields:
        raise ConfigInvalid(f"{where or 'The row'} has no fields")
    if len({field.name for field in fields}) < len(fields):
        raise ConfigInvalid(f"Two fields{' of ' + where if where else ''} have the same name")
    for field in fields:
        name = f"{where}.{field.name}" if where else field.name
        if field.type == "struct":
            _check_fields(field.fields, name)
        if not 0 <= field.nulls <= 1:
            raise ConfigInvalid(f"{name}: nulls is a share from 0 to 1")
        if not 0 <= field.length <= _MOST_LENGTH or not 0 <= field.scale <= _MOST_SCALE:
            raise ConfigInvalid(f"{name}: length is 0 to {_MOST_LENGTH}, scale 0 to {_MOST_SCALE}")
        classes = _LISTED.get(field.type, () if field.type not in _BITS else (int,))
        for value in field.values:
            if not isinstance(value, classes) or (isinstance(value, bool) and bool not in classes):
                raise ConfigInvalid(
                    f"{name}: {value!r} in values is not of type {field.type}, or not one that JSON can give"
                )
        bits = _BITS.get(field.type)
        for value in (*field.values, *((field.min, field.max) if field.prefix is None else ())):
            if (
                value is not None
                and bits is not None
                and not (value == int(value) and -(1 << bits) <= value < 1 << bits)
            ):
                raise ConfigInvalid(f"{name}: {value} is not of type {field.type}")
        low, high = _find_limits(field)
        if low > high:
            raise ConfigInvalid(f"{name}: min {low} is above max {high}")


def field_schema(field: FieldSpec, namespace: str) -> Schema:
    """Connect's schema of a field."""
    optional = field.nulls > 0
    if field.type == "struct":
        return types.struct(
            f"{namespace}.{field.name}",
            {member.name: field_schema(member, f"{namespace}.{field.name}") for member in field.fields},
            optional=optional,
        )
    if field.type == "decimal":
        return types.decimal(field.scale, optional=optional)
    if field.type == "date":
        return types.date(optional=optional)
    if field.type == "time":
        return types.time(optional=optional)
    if field.type == "timestamp":
        return types.timestamp(optional=optional)
    plain = _PLAIN[field.type]
    return types.Schema(plain.type, optional=True) if optional else plain


def row_schema(spec: RowSpec, name: str, *, payload: bool, optional: bool = False) -> Schema:
    """Connect's schema of a row."""
    members = {ID: types.STRING, PARTITION: types.INT32, SEQUENCE: types.INT64}
    members.update({field.name: field_schema(field, name) for field in spec.fields})
    if payload:
        members[PAYLOAD] = types.STRING
    return types.struct(name, members, optional=optional)


def running_times(spec: RowSpec) -> tuple[str, ...]:
    """Fields whose value is the record's own time, not a random one."""
    return tuple(
        field.name
        for field in spec.fields
        if field.type == "timestamp"
        and field.min is None
        and field.max is None
        and not field.values
        and not field.nulls
    )


def _find_limits(field: FieldSpec) -> tuple[float, float]:
    defaults = {
        "int8": (0, 127),
        "int16": (0, 32767),
        "int32": (0, 1_000_000),
        "int64": (0, 1_000_000_000_000),
        "date": (18_000, 20_000),
        "time": (0, 86_399_999),
        "timestamp": (EPOCH_MS, EPOCH_MS + 86_400_000),
    }
    low, high = defaults.get(field.type, (0, 1000))
    return low if field.min is None else field.min, high if field.max is None else field.max


def random_value(field: FieldSpec, source: random.Random) -> Any:
    """A value of a field; the same for the same state of ``source``."""
    if field.nulls and source.random() < field.nulls:
        return None
    if field.type == "struct":
        return {member.name: random_value(member, source) for member in field.fields}
    if field.values:
        chosen = source.choice(field.values)
        return float(chosen) if field.type in {"float", "double"} else chosen
    low, high = _find_limits(field)
    if field.type == "string":
        if field.prefix is not None:
            return f"{field.prefix}{source.randint(int(low), int(high))}"
        return random_text(field.length, source)
    if field.type == "bytes":
        return source.randbytes(field.length)
    if field.type == "boolean":
        return source.random() < 0.5
    if field.type == "decimal":
        return Decimal(source.randint(int(low * 10**field.scale), int(high * 10**field.scale))).scaleb(-field.scale)
    if field.type in {"float", "double"}:
        # Eighths are exact in both widths, so that a value equals itself after a round trip through either.
        return int(source.uniform(low, high) * 8) / 8
    return source.randint(int(low), int(high))


def random_text(length: int, source: random.Random) -> str:
    """Letters, digits and blanks."""
    return "".join(source.choices(_ALPHABET, k=length))
