"""The runtime's side of the fast path (``connectors.wire``): whether a task may hand over bytes, and how they are checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from connectors.errors import Fatal, Fenced
from connectors.schema import Schema
from connectors.wire import ROW, Fixed
from worker.converters.simple_header import SimpleHeaderConverter
from worker.host.delivery.routes import topic_complaint
from worker.transforms.rewriting import (
    NULL,
    Member,
    RewrittenForm,
    Struct,
    SymbolicMember,
    SymbolicRecord,
    SymbolicStruct,
    shared_paths,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.api import Batch, Header, SourceRecord
    from connectors.wire import EncodedBatch, Encoding, RowForm
    from worker.converters.base import Converter, Encode, HeaderConverter
    from worker.host.delivery.chunk import Headers
    from worker.host.delivery.convert import Converted
    from worker.transforms.pipeline import TransformPipeline

#: What must not be taken for "this table can't be encoded so".
_PASSED_ON: Final = (Fatal, Fenced)
#: Bytes shown before and behind the first difference.
_SHOWN: Final = 40


@dataclass(slots=True, eq=False)
class TaskRowWriter:
    """See ``connectors.wire.RowWriter``.

    Attributes:
        make_headers: gives the headers of each record, converted; gets the values of ``shared``.
    """

    topic: str
    key: RowForm | None
    value: RowForm
    make_headers: Callable[[Sequence[Any]], Headers]
    shared: tuple[tuple[str, ...], ...] = ()


class _WholeForm:
    """A ``RowForm`` of keys that are no structs: a converter's ordinary function writes each."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self.names: dict[str, Any] = {}
        self.constants: Callable[..., tuple[Any, ...]] = tuple
        self.events: tuple[tuple[str, ...], ...] = ()
        self.unpack = ""

    def unscaled(self, path: tuple[str, ...]) -> bool:
        """See ``RowForm``: there are no members."""
        raise ValueError(f"no member {path}")

    def leaf(self, path: tuple[str, ...], name: str, *, nullable: bool = True, checked: bool = False) -> str:
        """See ``RowForm``: there are no members."""
        del name, nullable, checked
        raise ValueError(f"no member {path}")

    def build(self, path: tuple[str, ...], members: Mapping[str, str]) -> str:
        """See ``RowForm``: there is no struct."""
        del members
        raise ValueError(f"no struct {path}")

    def array(self, path: tuple[str, ...], elements: Sequence[str]) -> str:
        """See ``RowForm``: there are no members."""
        del elements
        raise ValueError(f"no member {path}")

    def encode(self, rows: list[Any]) -> list[bytes]:
        """See ``RowForm``."""
        encode = self._encode
        return [encode(row) for row in rows]  # type: ignore[misc]  # none is null


class _MemberForm(_WholeForm):
    """A ``RowForm`` of keys that are one member of the connector's struct.

    Args:
        encode: the converter's ordinary function for it.
        member: which one, or the value of all keys.
    """

    def __init__(self, encode: Encode, member: Member | Fixed) -> None:
        super().__init__(encode)
        self._member = member
        self._expression = ""
        if isinstance(member, Fixed):
            self._expression = self._name_constant(member)
        elif member.marker != ROW:
            raise ValueError(f"{member.path} is not a member of each row")

    def unscaled(self, path: tuple[str, ...]) -> bool:
        """See ``RowForm``: decimals are as records have them."""
        del path
        return False

    def leaf(self, path: tuple[str, ...], name: str, *, nullable: bool = True, checked: bool = False) -> str:
        """See ``RowForm``; "None" for what is not in the key."""
        del checked
        member = self._member
        if isinstance(member, Member) and path == member.path:
            present = name if member.present is None else self._name_constant(member.present)
            null = "None" if member.null in (None, NULL) else self._name_constant(member.null)
            self._expression = f"({null} if {name} is None else {present})" if nullable and null != present else present
        return "None"

    def build(self, path: tuple[str, ...], members: Mapping[str, str]) -> str:
        """See ``RowForm``; "True" for a struct inside of the connector's."""
        del members
        if not path and not self._expression:
            raise ValueError("the key's member is not a member of the connector's keys")
        return "True" if path else self._expression

    def encode(self, rows: list[Any]) -> list[bytes]:
        """See ``RowForm``; a null key is a matter of single records."""
        if None in rows:
            raise ValueError("a key is null")
        return super().encode(rows)

    def _name_constant(self, fixed: Fixed | None) -> str:
        name = f"key_member_{len(self.names)}"
        self.names[name] = None if fixed is None else fixed.value
        return name


class TaskWire:
    """See ``connectors.wire.Wire``.

    Args:
        pipeline: the transforms.
        key: ``key.converter``.
        value: ``value.converter``.
        header: ``header.converter``.
        verify: whether what is handed over is compared with the records (``fast.path=verify``).
    """

    def __init__(
        self, pipeline: TransformPipeline, key: Converter, value: Converter, header: HeaderConverter, *, verify: bool
    ) -> None:
        self._pipeline = pipeline
        self._key = key
        self._value = value
        self._header = header
        self.verify = verify

    async def writer(
        self,
        topic: str,
        key: Encoding | Schema | None,
        value: Encoding,
        headers: Sequence[Header] = (),
        *,
        shares: bool = False,
    ) -> TaskRowWriter | None:
        """See ``connectors.wire.Wire``: None also where records would be refused, or a service is unavailable."""
        try:
            original = SymbolicRecord(topic, tuple(headers), _symbolic_key(key), SymbolicStruct.of(value))
            record = self._pipeline.rewrite(original)
            if record is None or topic_complaint(record.topic) is not None:
                return None
            topic, value = record.topic, record.value.encoding
            if isinstance(key, Schema):
                if record.key is not original.key:
                    return None
            elif isinstance(record.key, SymbolicMember):
                key = record.key.schema
            else:
                key = None if record.key is None else record.key.encoding
            await self._value.prepare(topic, value.schema)
            if key is not None:
                await self._key.prepare(topic, key if isinstance(key, Schema) else key.schema)
            value_form = self._value.row_form(topic, value, "value")
            key_form = None if key is None else self._key_form(topic, key, record.key)
            if value_form is None or (key is not None and key_form is None):
                return None
            if self._value.header_encoder(topic, value.schema) is not None:
                return None
            shared = shared_paths(record.headers)
            # Another converter might refuse a value, which is a matter of single records.
            if shared and not (shares and type(self._header) is SimpleHeaderConverter):
                return None
            make_headers = partial(_converted, self._header, topic, record.headers)
            if not shared:
                make_headers = partial(_same, make_headers(()))
            if record.value.struct != original.value.struct or not record.deletions:
                value_form = RewrittenForm(value_form, record.value.struct, "value", deletions=record.deletions)
            if (
                key_form is not None
                and isinstance(record.key, SymbolicStruct)
                and isinstance(original.key, SymbolicStruct)
                and record.key.struct != original.key.struct
            ):
                key_form = RewrittenForm(key_form, record.key.struct, "key", deletions=True)
            if key is None and self._key.null_needs_schema and self._key.encoder(topic, None)(None) is not None:
                return None
        except _PASSED_ON:
            raise
        except Exception:  # noqa: BLE001 - whatever a converter raises: each record will show it
            return None
        return TaskRowWriter(topic, key_form, value_form, make_headers, shared)

    def _key_form(
        self, topic: str, key: Encoding | Schema, symbol: SymbolicStruct | SymbolicMember | None
    ) -> RowForm | None:
        if isinstance(key, Schema):
            encode = self._key.encoder(topic, key)
            return _MemberForm(encode, symbol.member) if isinstance(symbol, SymbolicMember) else _WholeForm(encode)
        return self._key.row_form(topic, key, "key")


def _symbolic_key(key: Encoding | Schema | None) -> SymbolicStruct | None:
    """The keys for transforms; of keys that are no structs they can only leave the whole as it is."""
    if key is None:
        return None
    return SymbolicStruct(key, Struct({})) if isinstance(key, Schema) else SymbolicStruct.of(key)


def wire_of(
    mode: str, pipeline: TransformPipeline, key: Converter, value: Converter, header: HeaderConverter
) -> TaskWire | None:
    """The wire of a task, or None if its records have to be records.

    Args:
        mode: ``fast.path``.
        pipeline: the transforms.
        key: ``key.converter``.
        value: ``value.converter``.
        header: ``header.converter``.
    """
    if mode == "off" or not pipeline.rewrites:
        return None
    return TaskWire(pipeline, key, value, header, verify=mode == "verify")


def count_encoded(batch: Batch) -> int:
    """How many records of a batch are bytes already."""
    return sum([len(part.values) for part in batch.encoded])


def last_timestamp(batch: Batch) -> int | None:
    """The timestamp of a batch's last record."""
    if batch.encoded and batch.encoded[-1].after == len(batch.records):
        timestamps = batch.encoded[-1].timestamps
        return timestamps[-1] if timestamps else None
    return batch.records[-1].timestamp if batch.records else None


def parts_of(batch: Batch) -> list[Sequence[SourceRecord] | EncodedBatch]:
    """The records of a batch in order: runs of records, and encoded ones."""
    parts: list[Sequence[SourceRecord] | EncodedBatch] = []
    start = 0
    for part in batch.encoded:
        if part.after > start:
            parts.append(batch.records[start : part.after])
            start = part.after
        parts.append(part)
    if start < len(batch.records):
        parts.append(batch.records[start:] if start else batch.records)
    return parts


def headers_of(part: EncodedBatch) -> Headers:
    """The headers of each record of ``part``."""
    return cast("TaskRowWriter", part.writer).make_headers(part.shared)


def _converted(converter: HeaderConverter, topic: str, headers: Sequence[Header], shared: Sequence[Any]) -> Headers:
    """Headers in bytes; those that are members of the values get the values of ``shared``, in order."""
    values = iter(shared)
    return [
        (
            header.key,
            converter.from_connect_header(
                topic,
                header.key,
                header.schema,
                next(values) if isinstance(header.value, Member) else header.value,
            ),
        )
        for header in headers
    ]


def _same(headers: Headers, _shared: Sequence[Any]) -> Headers:
    return headers


def compare_records(part: EncodedBatch, records: Sequence[SourceRecord], runs: Sequence[Converted]) -> None:
    """Compare encoded records with what the converters make of the same records.

    Args:
        part: the encoded records.
        records: ``part.records()``.
        runs: the same, converted, in order.

    Raises:
        Fatal: they are not the same; says where and what.
    """
    nulls: list[None] = [None] * len(part.values)
    encoded = zip(part.keys or nulls, part.values, part.timestamps or nulls, strict=True)
    topic, expected_headers = part.writer.topic, headers_of(part) or []
    done = 0
    for run in runs:
        count = len(run.values)
        keys = run.keys or [None] * count
        headers = run.headers or [[]] * count
        times = run.timestamps or [None] * count
        for record, key, value, heads, time in zip(run.records, keys, run.values, headers, times, strict=True):
            ours = next(encoded, None)
            if ours is None:
                raise _difference_error(record, "there is one record less on the fast path", done)
            for name, expected, encoded_value in (("key", key, ours[0]), ("value", value, ours[1])):
                if expected != encoded_value:
                    raise _difference_error(record, _first_difference(name, expected, encoded_value), done)
            if run.topic != topic or heads != expected_headers or run.partitions or run.everywhere:
                raise _difference_error(record, f"topic, headers or partition: {topic!r} and {run.topic!r}", done)
            if time != ours[2]:
                raise _difference_error(record, f"timestamp: general path {time}, fast path {ours[2]}", done)
            done += 1
    if done != len(part.values) or done != len(records):
        raise Fatal(
            f"fast.path=verify: topic {topic}: the fast path gives {len(part.values)} records, of which {done} can be compared "
            "with the general path: report it, and set fast.path=off"
        )


def _difference_error(record: SourceRecord, difference: str, number: int) -> Fatal:
    return Fatal(
        f"fast.path=verify: record {number} of topic {record.topic} at source partition {record.source_partition}, source "
        f"offset {record.source_offset} is not the same on both paths: {difference}. Report it, and set fast.path=off"
    )


def _first_difference(name: str, expected: bytes | None, encoded_value: bytes | None) -> str:
    if expected is None or encoded_value is None:
        return f"{name} is {'null' if expected is None else 'not null'} on the general path only"
    at = next(
        (index for index, pair in enumerate(zip(expected, encoded_value, strict=False)) if pair[0] != pair[1]),
        min(len(expected), len(encoded_value)),
    )
    window = slice(max(0, at - _SHOWN), at + _SHOWN)
    return f"{name} from byte {at} on: general path {expected[window]!r}, fast path {encoded_value[window]!r}"
