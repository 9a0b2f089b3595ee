"""Records of a topic as the console shows them: decoded as they are written, or as they look; masked; in order."""

from __future__ import annotations

import base64
import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from connectors.api import Header, SourceRecord
from connectors.errors import MillraceError, Skippable
from connectors.formats import partition_update_raw
from worker.converters.json import JsonConverter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiokafka import ConsumerRecord

    from connectors.schema import Schema
    from worker.converters.base import Converter

MASK: Final = "***"
#: Bytes of binary data, and characters of a string, that are shown.
_MOST_RAW: Final = 4096
_MOST_TEXT: Final = 65536
#: Members that say what a change is, and nothing of what is in it.
_PLAIN: Final = frozenset({"op", "ts_ms", "ums_op_", "ums_ts_", "type", "namespace"})
_PLAIN_SOURCE: Final = ("connector", "name", "db", "schema", "table", "snapshot", "ts_ms", "keyspace_name", "keyspace")
_MAGIC: Final = 0
#: Browsers know whole numbers up to here.
_EXACT: Final = 1 << 53
_ID_BYTES: Final = 5


def _exact_number(literal: str) -> float | str:
    """A number with a fraction, as a string if a float says another one."""
    number = float(literal)
    return number if repr(number) == literal else literal


_load: Final = msgspec.json.Decoder(float_hook=_exact_number).decode


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """A key or a value.

    Attributes:
        form: how it was written: a converter's name, ``json``, ``text``, ``bytes`` or ``null``.
        value: as JSON.
        schema: for conditions.
        own: the value for conditions.
        problem: why it was not decoded as its converter says.
    """

    form: str
    value: Any
    schema: Schema | None = None
    native: Any = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MatchingRecord:
    """A record that fits."""

    record: ConsumerRecord
    key: DecodedPart
    value: DecodedPart


def guess_value(data: bytes | None, form: str = "auto") -> DecodedPart:
    """A key or a value as it looks. Pure."""
    if data is None:
        return DecodedPart("null", None)
    if form in {"auto", "json"}:
        try:
            matches = _load(data)
        except (ValueError, RecursionError):
            if form == "json":
                return DecodedPart("bytes", _format_raw(data), problem="it is no JSON")
        else:
            if isinstance(matches, dict) and matches.keys() == {"schema", "payload"}:
                matches = matches["payload"]
            return DecodedPart("json", matches, native=matches)
    if form in {"auto", "text"}:
        try:
            decoded = data.decode()
        except UnicodeDecodeError:
            if form == "text":
                decoded = data.decode("utf-8", "replace")
                return DecodedPart("text", decoded[:_MOST_TEXT], native=decoded)
        else:
            if form == "text" or all(character.isprintable() or character in "\r\n\t" for character in decoded):
                return DecodedPart("text", decoded[:_MOST_TEXT], native=decoded)
    problem = ""
    if form == "auto" and len(data) > _ID_BYTES and data[0] == _MAGIC:
        number = int.from_bytes(data[1:_ID_BYTES])
        problem = (
            f"it begins as what a schema registry has the schema of (id {number}): name a connector whose converter knows "
            "the registry"
        )
    return DecodedPart("bytes", _format_raw(data), native=data, problem=problem)


def _format_raw(data: bytes) -> str:
    return data[:_MOST_RAW].hex(" ") + (" …" if len(data) > _MOST_RAW else "")


@dataclass(slots=True)
class Reading:
    """Decodes records and says which fit. One answer's; ``failures`` counts those for which the condition can't be said."""

    topic: str
    form: str
    key_converter: Converter | None
    value_converter: Converter | None
    key: str = ""
    where: Callable[[SourceRecord], Any] | None = None
    failures: int = 0
    failure: str = ""
    _writer: JsonConverter = field(
        default_factory=lambda: JsonConverter({"schemas.enable": "false", "decimal.format": "NUMERIC"})
    )

    async def read(self, record: ConsumerRecord) -> MatchingRecord | None:
        """The record, or None if it does not fit."""
        key = await self._decode_part(record.key, self.key_converter)
        if self.key and self.key not in _to_text(key.value):
            return None
        matching = MatchingRecord(record, key, await self._decode_part(record.value, self.value_converter))
        return matching if self.where is None or self._is_match(self.where, matching) else None

    def _is_match(self, where: Callable[[SourceRecord], Any], matching: MatchingRecord) -> bool:
        record = matching.record
        try:
            headers = tuple(Header(name, data, None) for name, data in record.headers or ())
            return (
                where(
                    SourceRecord(
                        {},
                        {},
                        self.topic,
                        matching.value.native,
                        matching.value.schema,
                        matching.key.native,
                        matching.key.schema,
                        record.partition,
                        headers,
                        record.timestamp,
                    )
                )
                is True
            )
        except Skippable as error:
            self.failures += 1
            self.failure = self.failure or str(error)
            return False

    async def _decode_part(self, data: bytes | None, converter: Converter | None) -> DecodedPart:
        if data is None or self.form != "auto" or converter is None:
            return guess_value(data, self.form)
        try:
            await converter.prepare_data(self.topic, data)
            schema, value = converter.to_connect(self.topic, data)
            name = type(converter).__name__.removesuffix("Converter")
            if schema is not None and partition_update_raw.is_raw(schema):
                form = partition_update_raw.form_of(schema.parameter)
                update = msgspec.to_builtins(partition_update_raw.decode_raw(value, form), enc_hook=str)
                return DecodedPart(f"{name}, raw partition update", update, schema, value)
            if isinstance(value, bytes):
                return guess_value(data)
            written = self._writer.from_connect(self.topic, schema, value)
            return DecodedPart(name, None if written is None else _load(written), schema, value)
        except (MillraceError, ValueError) as error:
            part = guess_value(data)
            return DecodedPart(part.form, part.value, None, part.native, part.problem or str(error))


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def kind_of(value: Any) -> tuple[str, str]:
    """Return the kind of a value and a few words about it: (``debezium``, ``u shop.orders``). Pure."""
    if not isinstance(value, dict):
        return ("tombstone" if value is None else ""), ""
    source = value.get("source")
    if isinstance(source, dict) and "op" in value:
        names = [source.get(name) for name in ("db", "keyspace_name", "schema", "table", "table_name")]
        return "debezium", f"{value['op']} {'.'.join(str(name) for name in names if name)}".strip()
    if isinstance(source, dict) and "write_time" in value and ("rows" in value or "key" in value):
        return "partition update", ".".join(str(source[name]) for name in ("keyspace", "table") if source.get(name))
    protocol, schema = value.get("protocol"), value.get("schema")
    if isinstance(protocol, dict) and isinstance(schema, dict) and "namespace" in schema:
        return "ums", f"{protocol.get('type', '')} {schema['namespace']}".strip()
    return "", ""


def mask_value(value: Any) -> Any:
    """A value with its members' names and without what they say; which table and what kind of change stay. Pure."""
    if isinstance(value, dict):
        return {
            name: {
                inner: member if inner in _PLAIN_SOURCE and not isinstance(member, dict | list) else mask_value(member)
                for inner, member in item.items()
            }
            if name == "source" and isinstance(item, dict)
            else item
            if name in _PLAIN and isinstance(item, str | int)
            else mask_value(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [mask_value(item) for item in value[:1]] + (["…"] if len(value) > 1 else [])
    return None if value is None else MASK


def show_record(matching: MatchingRecord, *, masked: bool) -> dict[str, Any]:
    """A record as it is answered. Pure."""
    record = matching.record
    kind, summary = kind_of(matching.value.value)
    hide = _hide_value if masked else _to_browser_value
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "kind": kind,
        "summary": summary,
        "key": hide(matching.key.value),
        "key_form": matching.key.form,
        "value": hide(matching.value.value),
        "value_form": matching.value.form,
        "bytes": len(record.key or b"") + len(record.value or b""),
        "headers": [[name, hide(_read_header(data))] for name, data in record.headers or ()],
        "problem": "" if masked else "; ".join(filter(None, (matching.key.problem, matching.value.problem))),
    }


def _to_browser_value(value: Any) -> Any:
    """A value with whole numbers as a browser knows them."""
    if isinstance(value, dict):
        return {name: _to_browser_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_browser_value(item) for item in value]
    return str(value) if isinstance(value, int) and abs(value) > _EXACT else value


def _hide_value(value: Any) -> Any:
    return mask_value(value)


def _read_header(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()[:_MOST_TEXT]
    except UnicodeDecodeError:
        return base64.b64encode(data[:_MOST_RAW]).decode()


def merge_newest(matches: Mapping[int, Sequence[MatchingRecord]], limit: int) -> tuple[list[MatchingRecord], bool]:
    """The newest of all partitions, each partition in the order of its offsets; and whether others are left. Pure."""
    heads = [(-records[0].record.timestamp, number, 0) for number, records in sorted(matches.items()) if records]
    heapq.heapify(heads)
    chosen: list[MatchingRecord] = []
    while heads and len(chosen) < limit:
        _, number, index = heapq.heappop(heads)
        chosen.append(matches[number][index])
        if index + 1 < len(matches[number]):
            heapq.heappush(heads, (-matches[number][index + 1].record.timestamp, number, index + 1))
    return chosen, bool(heads)


def partition_cursor(
    start: Mapping[int, int],
    low: Mapping[int, int],
    matches: Mapping[int, Sequence[MatchingRecord]],
    chosen: Sequence[MatchingRecord],
) -> dict[int, int]:
    """Before which offset of each partition to continue, so that nothing is left out and nothing comes again. Pure.

    Args:
        start: where reading began.
        low: up to where it came.
        matches: the records that fit, the newest first.
        chosen: those of them that are shown.
    """
    last: dict[int, int] = {}
    counts: dict[int, int] = {}
    for matching in chosen:
        last[matching.record.partition] = matching.record.offset
        counts[matching.record.partition] = counts.get(matching.record.partition, 0) + 1
    return {
        number: low[number]
        if counts.get(number, 0) == len(matches.get(number, ()))
        else last.get(number, start[number])
        for number in start
    }
