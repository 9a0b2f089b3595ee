"""Rows as documents, and names of databases and collections. Pure."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.namespaces import shorten_name
from spark_jobs.sinks.shared.model import change_id
from spark_jobs.sinks.shared.templates import Unfilled
from spark_jobs.sinks.shared.values import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spark_jobs.sinks.mongodb.config import MongoSettings
    from spark_jobs.sinks.shared.model import RowTable, SinkRow

#: Digits of a Decimal128.
_DIGITS: Final = 34
_NO_DATABASE: Final = re.compile(r"[/\\. \"$*<>:|?\x00]")
_NO_COLLECTION: Final = re.compile(r"[$\x00]")
_LONGEST_DATABASE: Final = 63
#: MongoDB counts the database, a point and the collection together: 255 bytes. Deletes are in a collection with a longer name.
_LONGEST: Final = 255 - _LONGEST_DATABASE - 1 - len("_ums_deletes")
_LARGEST: Final = 16 << 20


def database_name(name: str) -> str:
    """A name as a database may have it."""
    return shorten_name(_NO_DATABASE.sub("_", name) or "_", _LONGEST_DATABASE, octets=True)


def collection_name(name: str) -> str:
    """A name as a collection may have it."""
    fit = _NO_COLLECTION.sub("_", name) or "_"
    return shorten_name(f"_{fit}" if fit.startswith("system.") else fit, _LONGEST, octets=True)


def guards_of(collection: str) -> str:
    """The collection that remembers the deletes of another one."""
    return f"{collection}_ums_deletes"


def encoder_of(settings: MongoSettings) -> Callable[[Mapping[str, Any]], bytes]:
    """The function that makes BSON of a document; it raises ``Unfilled`` where a document can't be BSON."""
    import bson
    from bson.codec_options import CodecOptions, TypeRegistry
    from bson.errors import BSONError

    decimals = settings.decimals
    options: CodecOptions[Any] = CodecOptions(
        type_registry=TypeRegistry(fallback_encoder=lambda value: _as_bson(value, decimals=decimals))
    )

    def encode(document: Mapping[str, Any]) -> bytes:
        try:
            content = bson.encode(document, codec_options=options)
        except (BSONError, OverflowError, ValueError):
            try:  # keys of maps are names of fields, which are text
                content = bson.encode(_with_text_keys(document), codec_options=options)
            except (BSONError, OverflowError, ValueError) as error:
                raise Unfilled(f"its document can't be BSON: {error}") from error
        if len(content) > _LARGEST:
            raise Unfilled(f"its document has {len(content)} bytes, and MongoDB takes {_LARGEST >> 20} MiB")
        return content

    return encode


def id_of(settings: MongoSettings, table: RowTable) -> Callable[[SinkRow], Any]:
    """The function that gives the ``_id`` of a row's document; it raises ``Unfilled`` and ``values.NoText``."""
    if settings.append:
        return lambda row: change_id(row, table)
    if settings.id.text:
        return settings.id.bind(table)

    def value_of(row: SinkRow, name: str) -> Any:
        value = row.values.get(name)
        if value is None:
            raise Unfilled(f"the column {name} is null, and belongs to the key")
        return make_exact(value, decimals=settings.decimals)

    if len(table.keys) == 1 and not settings.id_document:
        (only,) = table.keys
        return lambda row: _alone(only, value_of(row, only))
    return lambda row: {name: value_of(row, name) for name in table.keys}


def _alone(name: str, value: Any) -> Any:
    """The value of a key's only column as an ``_id``, which can't be an array."""
    return {name: value} if isinstance(value, list) else value


def make_exact(value: Any, *, decimals: bool) -> Any:
    """A value of a key as BSON has it, and as text where BSON would round it, so that two keys do not become one.

    Raises:
        Unfilled: a name in it has a dollar in front, which no ``_id`` may have.
    """
    if isinstance(value, dict):
        return {_exact_name(name): make_exact(part, decimals=decimals) for name, part in value.items()}
    if isinstance(value, list):
        return [make_exact(part, decimals=decimals) for part in value]
    if isinstance(value, datetime):
        if value.microsecond % 1000:
            return text_of(value)
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, (Decimal, date)):
        return _as_bson(value, decimals=decimals)
    # Of a number that differs from itself no program knows whether it is there.
    return text_of(value) if isinstance(value, float) and math.isnan(value) else value


def _exact_name(name: Any) -> str:
    fit = name if isinstance(name, str) else text_of(name)
    if fit.startswith("$"):
        raise Unfilled(f"its key has the name {fit}, and MongoDB takes no name with a dollar in front in an _id")
    return fit


def make_hashable(value: Any) -> Any:
    """An ``_id`` as a key of a dictionary; equal where MongoDB finds the two equal."""
    if isinstance(value, dict):
        return tuple((name, make_hashable(part)) for name, part in value.items())
    if isinstance(value, list):
        return tuple(map(make_hashable, value))
    to_decimal = getattr(value, "to_decimal", None)
    return to_decimal() if to_decimal is not None else value


def _as_bson(value: Any, *, decimals: bool) -> Any:
    """A value that the driver does not know."""
    if isinstance(value, Decimal):
        from bson.decimal128 import Decimal128

        # The driver refuses more digits.
        return Decimal128(value) if decimals and len(value.as_tuple().digits) <= _DIGITS else format(value, "f")
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return text_of(value)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {name if isinstance(name, str) else text_of(name): _with_text_keys(part) for name, part in value.items()}
    return [_with_text_keys(part) for part in value] if isinstance(value, list) else value
