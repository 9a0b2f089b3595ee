"""Records to keys, values and headers in bytes, a run of records of one topic and schema at a time."""

from __future__ import annotations

from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from connectors.api import EVERY_PARTITION, SameAs
from connectors.errors import Fatal, Fenced, Retriable
from worker.host.errors import ErrorStage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from connectors.api import SourceRecord
    from connectors.schema import Schema
    from worker.converters.base import Converter, Encode, HeaderConverter, HeaderEncode
    from worker.host.delivery.chunk import Headers

#: What the runner must see: an outage, or the end of the task.
_NOT_THE_RECORD: Final = (Retriable, Fatal, Fenced)
_NOWHERE: Final[frozenset[int]] = frozenset()
_Item = TypeVar("_Item")


class Converted(NamedTuple):
    """A run of records ready for a ``Route``: parallel lists, None for "all None" or "no headers".

    ``places`` are keys that choose the partition instead of ``keys``. ``everywhere`` are indexes of records that go to every
    partition, see ``spread``.
    """

    topic: str
    records: Sequence[SourceRecord]
    values: list[bytes | None]
    keys: list[bytes | None] | None
    partitions: list[int | None] | None
    partition_keys: list[bytes | None] | None
    timestamps: list[int | None] | None
    headers: list[Headers] | None
    everywhere: frozenset[int] = frozenset()

    def spread(self, partitions: int) -> Converted:
        """The same with a copy for each partition of the topic of those records that go to all of them.

        Args:
            partitions: how many the topic has.
        """
        if not self.everywhere:
            return self
        chosen = self.partitions or [None] * len(self.values)
        copies = [
            (index, number)
            for index in range(len(self.values))
            for number in (range(partitions) if index in self.everywhere else (chosen[index],))
        ]

        def copied(values: Sequence[_Item] | None) -> list[_Item] | None:
            return None if values is None else [values[index] for index, _ in copies]

        return Converted(
            self.topic,
            copied(self.records) or [],
            copied(self.values) or [],
            copied(self.keys),
            [number for _, number in copies],
            copied(self.partition_keys),
            copied(self.timestamps),
            copied(self.headers),
        )


class Refused(NamedTuple):
    """A record that could not be converted."""

    record: SourceRecord
    stage: ErrorStage
    error: Exception
    executing: str


def split_runs(records: Sequence[SourceRecord]) -> list[Sequence[SourceRecord]]:
    """Split ``records`` into runs of one topic, key schema and value schema (the same objects), in order within each topic.

    Order between topics is not kept: Kafka has none. A uniform batch, the usual case, is looked at once and not copied.
    """
    first = records[0]
    topic, key_schema, value_schema = first.topic, first.key_schema, first.value_schema
    for record in records:
        if record.value_schema is not value_schema or record.topic is not topic or record.key_schema is not key_schema:
            break
    else:
        return [records]
    by_topic: dict[str, list[SourceRecord]] = {}
    for record in records:
        group = by_topic.get(record.topic)
        if group is None:
            group = by_topic[record.topic] = []
        group.append(record)
    result: list[Sequence[SourceRecord]] = []
    for group in by_topic.values():
        start = 0
        value_schema, key_schema = group[0].value_schema, group[0].key_schema
        for index, record in enumerate(group):
            if record.value_schema is not value_schema or record.key_schema is not key_schema:
                result.append(group[start:index])
                start, value_schema, key_schema = index, record.value_schema, record.key_schema
        result.append(group[start:] if start else group)
    return result


class _Prepared(NamedTuple):
    """The converters for one pair of schemas; holds the schemas, whose ids are its key."""

    key_schema: Schema | None
    value_schema: Schema | None
    key: Encode
    value: Encode
    #: What encodes values where headers matter.
    with_headers: HeaderEncode | None
    #: Whether it is for null keys, or null values, only: their converter was not asked for a schema.
    null_keys: bool
    null_values: bool


def _null_keys(run: Sequence[SourceRecord]) -> bool:
    return [record.key for record in run].count(None) == len(run)


def _null_values(run: Sequence[SourceRecord]) -> bool:
    return [record.value for record in run].count(None) == len(run)


def _encode_null(value: Any) -> None:
    """The encoder of nulls."""
    del value


class Conversion:
    """The three converters of a task.

    Args:
        key: ``key.converter``.
        value: ``value.converter``.
        header: ``header.converter``.
        persist: runs a coroutine function and tries it again as long as it raises ``Retriable``.
    """

    def __init__(
        self,
        key: Converter,
        value: Converter,
        header: HeaderConverter,
        persist: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        self._key = key
        self._value = value
        self._header = header
        self._persist = persist
        self._prepared: dict[tuple[str, int, int], _Prepared] = {}

    async def close(self) -> None:
        """Release the converters' connections."""
        await self._key.close()
        await self._value.close()

    async def convert(self, run: Sequence[SourceRecord], refused: list[Refused]) -> Converted | None:
        """Convert a run; records that can't be go to ``refused``. None if nothing is left.

        Raises:
            Fatal: a service that a converter needs refuses this client, or is unavailable for longer than it may be retried.
        """
        before = len(refused)
        try:
            return await self._convert_run(run, refused)
        except Retriable:  # of a converter that asks a service for each record: an outage, and not the source's
            converted: Converted | None = None

        async def retry_conversion() -> None:
            nonlocal converted
            del refused[before:]
            converted = await self._convert_run(run, refused)

        await self._persist(retry_conversion)
        return converted

    async def _convert_run(self, run: Sequence[SourceRecord], refused: list[Refused]) -> Converted | None:
        """Convert a run like ``convert``; raises ``Retriable`` where the call may be retried."""
        first = run[0]
        topic = first.topic
        entry = self._prepared.get((topic, id(first.key_schema), id(first.value_schema)))
        if entry is None or (entry.null_keys and not _null_keys(run)) or (entry.null_values and not _null_values(run)):
            entry = await self._prepare_encoders(topic, run, refused)
            if entry is None:
                return None
        encode_key, encode_value, encode_with_headers = entry.key, entry.value, entry.with_headers
        keys: list[Any] | None = None
        heads: list[Headers] | None = None
        if encode_with_headers is not None:
            run, keys, values, heads = self._with_headers(run, encode_key, encode_with_headers, refused)
        else:
            try:
                keys = self._encode_keys(run, encode_key)
                values = [encode_value(record.value) for record in run]
            except _NOT_THE_RECORD:
                raise
            except Exception:  # noqa: BLE001 - found again below, record by record
                run, keys, values = self._one_by_one(run, encode_key, encode_value, refused)
            if any([record.headers for record in run]):  # noqa: C419 - a list is faster here than a generator
                run, keys, values, heads = self._encode_headers(run, keys, values, refused)
        if not run:
            return None
        asked = [record.partition for record in run]
        partitions: list[int | None] | None = None
        partition_keys: list[bytes | None] | None = None
        if asked.count(None) < len(asked):
            partitions = [partition if isinstance(partition, int) else None for partition in asked]
            if any(isinstance(partition, SameAs) for partition in asked):
                partition_keys = [_partition_key(partition, encode_key) for partition in asked]
        everywhere = (
            frozenset(index for index, partition in enumerate(asked) if partition == EVERY_PARTITION)
            if partitions
            else _NOWHERE
        )
        timestamps: list[int | None] | None = [record.timestamp for record in run]
        if timestamps is not None and timestamps.count(None) == len(timestamps):
            timestamps = None
        return Converted(topic, run, values, keys, partitions, partition_keys, timestamps, heads, everywhere)

    async def _prepare_encoders(
        self, topic: str, run: Sequence[SourceRecord], refused: list[Refused]
    ) -> _Prepared | None:
        first = run[0]
        encoders: list[Encode] = []
        null_keys = first.key_schema is None and not self._key.null_needs_schema and _null_keys(run)
        null_values = first.value_schema is None and not self._value.null_needs_schema and _null_values(run)
        for stage, converter, schema, null in (
            (ErrorStage.KEY_CONVERTER, self._key, first.key_schema, null_keys),
            (ErrorStage.VALUE_CONVERTER, self._value, first.value_schema, null_values),
        ):
            if null:
                encoders.append(_encode_null)
                continue
            try:
                await self._persist(lambda converter=converter, schema=schema: converter.prepare(topic, schema))  # type: ignore[misc]
                encoders.append(converter.encoder(topic, schema))
            except _NOT_THE_RECORD:
                raise
            except Exception as error:  # noqa: BLE001 - a schema that can't be converted: all of its records can't
                refused.extend(Refused(record, stage, error, _class_path(converter)) for record in run)
                return None
        if len(self._prepared) >= 1000:
            self._prepared.clear()
        entry = _Prepared(
            first.key_schema,
            first.value_schema,
            encoders[0],
            encoders[1],
            self._value.header_encoder(topic, first.value_schema),
            null_keys,
            null_values,
        )
        self._prepared[topic, id(first.key_schema), id(first.value_schema)] = entry
        return entry

    def _with_headers(
        self,
        run: Sequence[SourceRecord],
        encode_key: Encode,
        encode_value: HeaderEncode,
        refused: list[Refused],
    ) -> tuple[list[SourceRecord], list[bytes | None] | None, list[bytes | None], list[Headers]]:
        """For a value converter that looks at the converted headers: these come first."""
        good, some_keys, _ = self._one_by_one(run, encode_key, lambda _: None, refused)
        good, keys, _, heads = self._encode_headers(good, some_keys, [None] * len(good), refused)
        kept: list[int] = []
        values: list[bytes | None] = []
        for index, record in enumerate(good):
            try:
                values.append(encode_value(record.value, heads[index]))
            except _NOT_THE_RECORD:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                refused.append(Refused(record, ErrorStage.VALUE_CONVERTER, error, _class_path(self._value)))
                continue
            kept.append(index)
        if len(kept) < len(good):
            good, heads = [good[index] for index in kept], [heads[index] for index in kept]
            keys = None if keys is None else [keys[index] for index in kept]
        return good, keys, values, heads

    @staticmethod
    def _encode_keys(run: Sequence[SourceRecord], encode: Encode) -> list[bytes | None] | None:
        if run[0].key is not None:
            return [encode(record.key) for record in run]
        keys = [record.key for record in run]
        if keys.count(None) < len(keys):
            return [encode(key) for key in keys]
        same = encode(None)
        return None if same is None else [same] * len(keys)

    def _one_by_one(
        self,
        run: Sequence[SourceRecord],
        encode_key: Encode,
        encode_value: Encode,
        refused: list[Refused],
    ) -> tuple[list[SourceRecord], list[bytes | None], list[bytes | None]]:
        good: list[SourceRecord] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for record in run:
            stage, converter = ErrorStage.KEY_CONVERTER, self._key
            try:
                key = encode_key(record.key)
                stage, converter = ErrorStage.VALUE_CONVERTER, self._value
                value = encode_value(record.value)
            except _NOT_THE_RECORD:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a converter raises on a record is that record's
                refused.append(Refused(record, stage, error, _class_path(converter)))
                continue
            good.append(record)
            keys.append(key)
            values.append(value)
        return good, keys, values

    def _encode_headers(
        self,
        run: Sequence[SourceRecord],
        keys: list[bytes | None] | None,
        values: list[bytes | None],
        refused: list[Refused],
    ) -> tuple[list[SourceRecord], list[bytes | None] | None, list[bytes | None], list[Headers]]:
        convert = self._header.from_connect_header
        shared = run[0].headers
        if not any([record.headers is not shared for record in run]):  # noqa: C419 - as above
            # Connectors that put the same headers on every record share the object.
            with suppress(Exception):  # found again below, record by record
                same: Headers = [
                    (header.key, convert(run[0].topic, header.key, header.schema, header.value)) for header in shared
                ]
                return list(run), keys, values, [same] * len(run)
        good: list[SourceRecord] = []
        new_keys: list[bytes | None] = []
        new_values: list[bytes | None] = []
        heads: list[Headers] = []
        for record, key, value in zip(run, keys or repeat(None), values, strict=False):
            try:
                head: Headers = [
                    (header.key, convert(record.topic, header.key, header.schema, header.value))
                    for header in record.headers
                ]
            except _NOT_THE_RECORD:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                refused.append(Refused(record, ErrorStage.HEADER_CONVERTER, error, _class_path(self._header)))
                continue
            good.append(record)
            new_keys.append(key)
            new_values.append(value)
            heads.append(head)
        return good, None if keys is None else new_keys, new_values, heads


def _class_path(converter: object) -> str:
    return f"{type(converter).__module__}.{type(converter).__qualname__}"


def _partition_key(partition: object, encode_key: Encode) -> bytes | None:
    """The bytes of the key that chooses a record's partition; None: its own does, also where a transform has changed keys."""
    if not isinstance(partition, SameAs):
        return None
    try:
        return encode_key(partition.key)
    except Exception:  # noqa: BLE001 - keys have another schema now
        return None
