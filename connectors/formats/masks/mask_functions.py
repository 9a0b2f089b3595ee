"""The functions behind masks: digests, default values by type, values as strings. All are pure, none blocks."""

from __future__ import annotations

import base64
import hashlib
import struct
from decimal import Decimal, Inexact, localcontext
from typing import TYPE_CHECKING, Any, Final

import mmh3
import msgspec

from connectors.errors import ConfigInvalid, Skippable
from connectors.schema import DECIMAL, Schema, Type

if TYPE_CHECKING:
    from collections.abc import Callable

_INTEGER_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
#: Java's names of digests that differ from Python's by more than case and hyphens.
_JAVA_DIGESTS: Final = {
    "sha": "sha1",
    "sha512/224": "sha512_224",
    "sha512/256": "sha512_256",
    "sha3224": "sha3_224",
    "sha3256": "sha3_256",
    "sha3384": "sha3_384",
    "sha3512": "sha3_512",
}
#: Strings for 1970 or for nothing, of the logical types that are carried as strings.
_DEFAULT_TEXTS: Final = {
    "io.debezium.time.ZonedTimestamp": "1970-01-01T00:00:00Z",
    "io.debezium.time.ZonedTime": "00:00:00Z",
    "io.debezium.time.IsoTimestamp": "1970-01-01T00:00:00",
    "io.debezium.time.IsoDate": "1970-01-01Z",
    "io.debezium.time.IsoTime": "00:00:00Z",
    "io.debezium.data.Json": "{}",
    "io.millrace.ums.date": "1970-01-01",
    "io.millrace.ums.datetime": "1970-01-01 00:00:00.000000",
    "io.millrace.ums.decimal": "0",
}
_YEAR: Final = "io.debezium.time.Year"
_BIT_FIELD: Final = "io.debezium.data.Bits"
#: A point at 0, 0 as well-known binary.
_ORIGIN: Final = struct.pack("<BIdd", 1, 1, 0.0, 0.0)


def digest_of(algorithm: str) -> Callable[[bytes], Any]:
    """The constructor of a digest that Java or Python knows by this name (``SHA-256``, ``md5``, ``SHA-512/256`` ...).

    Raises:
        ConfigInvalid: this machine has no such digest.
    """
    plain = algorithm.strip().lower().replace("-", "")
    name = _JAVA_DIGESTS.get(plain, plain)

    def make(data: bytes) -> Any:
        return hashlib.new(name, data, usedforsecurity=False)

    try:
        make(b"").hexdigest()
    except (ValueError, TypeError):  # TypeError: a digest without a length of its own, which Java doesn't have either
        algorithms = "MD5, SHA-1, SHA-224, SHA-256, SHA-384, SHA-512, SHA3-256, SHA3-512"
        raise ConfigInvalid(f"unknown hash algorithm {algorithm!r}; use one of {algorithms}") from None
    return make


def java_serialized(string: str) -> bytes:
    """The bytes of Java's ``ObjectOutputStream`` for a string: stream header, type code, length, modified UTF-8."""
    body = bytearray()
    for (unit,) in struct.iter_unpack("<H", string.encode("utf-16-le", "surrogatepass")):
        if 0 < unit < 0x80:
            body.append(unit)
        elif unit < 0x800:
            body += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            body += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    head = b"\x74" + struct.pack(">H", len(body)) if len(body) <= 0xFFFF else b"\x7c" + struct.pack(">Q", len(body))
    return b"\xac\xed\x00\x05" + head + body


def murmur3_32(data: bytes, seed: int = 0) -> int:
    """MurmurHash3_x86_32, without sign."""
    return mmh3.hash(data, seed, signed=False)


def murmur3_128(data: bytes, seed: int = 0) -> bytes:
    """MurmurHash3_x64_128: 16 bytes, each half with its lowest byte first, as the reference implementation stores them."""
    return mmh3.mmh3_x64_128_digest(data, seed)


def value_bytes(value: Any) -> bytes:
    """A value as the bytes that are hashed: text as UTF-8, numbers in decimal, ``true`` and ``false``, bytes as they are.

    Lists and structs are JSON with sorted names, so that equal values give equal bytes.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value_text(value).encode("utf-8", "surrogatepass")


def value_text(value: Any) -> str:
    """A value as text; bytes in base 64, lists and structs as JSON with sorted names."""
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple | dict):
        return msgspec.json.encode(_to_plain(value), order="sorted").decode()
    return str(value)


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {value_text(name): _to_plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(member) for member in value]
    return format(value, "f") if isinstance(value, Decimal) else value


def default_of(schema: Schema) -> Any:
    """The empty value of a type: 0, false, an empty string, 1970-01-01; a new object where it could be changed.

    Raises:
        ConfigInvalid: the type has no empty value.
    """
    kind = schema.type
    if schema.name == DECIMAL:
        return Decimal(0).scaleb(-int(schema.parameter("scale") or 0))
    if schema.name == _YEAR:
        return 1970
    if schema.name == _BIT_FIELD:
        return bytes((int(schema.parameter("length") or 1) + 7) // 8)
    if kind in _INTEGER_BITS:
        return 0
    if kind in (Type.FLOAT32, Type.FLOAT64):
        return 0.0
    if kind is Type.BOOLEAN:
        return False
    if kind is Type.STRING:
        return _DEFAULT_TEXTS.get(schema.name or "", "")
    if kind is Type.BYTES:
        return b""
    if kind is Type.ARRAY:
        return []
    if kind is Type.MAP:
        return {}
    if schema.name is not None and schema.name.startswith("io.debezium.data.geometry."):
        origin = {"x": 0.0, "y": 0.0, "wkb": _ORIGIN, "srid": None}
        return {field.name: origin[field.name] for field in schema.fields}
    return {field.name: None if field.schema.optional else default_of(field.schema) for field in schema.fields}


def parse_typed(raw: str, schema: Schema, where: str) -> Any:
    """``raw`` as a value of ``schema``.

    Raises:
        ConfigInvalid: it is not a value of ``schema``; ``where`` says what it was for.
    """
    kind = schema.type
    try:
        if kind is Type.STRING:
            return raw
        if schema.name == DECIMAL:
            return _parse_scaled(raw, int(schema.parameter("scale") or 0))
        if kind is Type.BYTES:
            return raw.encode()
        if kind in _INTEGER_BITS:
            return int.from_bytes(int(raw).to_bytes(_INTEGER_BITS[kind] // 8, "big", signed=True), "big", signed=True)
        if kind in (Type.FLOAT32, Type.FLOAT64):
            return float(raw)
        if kind is Type.BOOLEAN:
            return {"true": True, "false": False}[raw.lower()]
    except (ValueError, KeyError, OverflowError, ArithmeticError):
        pass
    raise ConfigInvalid(
        f"{where}: the replacement {raw!r} is no value of type {schema.name or kind}; give one that fits, or "
        "mask the column with default or hash"
    )


def _parse_scaled(digits: str, scale: int) -> Decimal:
    with localcontext() as context:
        context.prec = 200
        context.traps[Inexact] = True
        return Decimal(digits).quantize(Decimal(1).scaleb(-scale))


def utf16_cut(string: str, length: int) -> str:
    """The first ``length`` UTF-16 units of ``string``, as Java counts; a character of two units is not cut in half."""
    if len(string) <= length and (string.isascii() or len(string) * 2 <= length):
        return string
    if string.isascii():
        return string[:length]
    return string.encode("utf-16-le", "surrogatepass")[: 2 * length].decode("utf-16-le", "ignore")


def missing_field(rule: str, field: str) -> Skippable:
    """The complaint of a mask that needs another field of the row."""
    return Skippable(
        f"mask {rule} needs the field {field!r}, which the row image doesn't have: set binlog_row_image=FULL on "
        "the source (MySQL), include that column, or choose a column of the key as salt.field"
    )
