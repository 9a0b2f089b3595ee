"""Messages with partition updates: read by their writer's schema, and bound to the newest version of their table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.errors import Skippable
from spark_jobs.materializer.decoding.bind import Binding, bind_version, partition_decoder
from spark_jobs.materializer.decoding.versions import HEAD, WriterSchema, schema_id, split_envelope
from spark_jobs.materializer.engine.bucket_table import TableDescription
from spark_jobs.materializer.events.forms import TableShape

if TYPE_CHECKING:
    from spark_jobs.materializer.decoding.catalog import KnownVersion
    from spark_jobs.materializer.decoding.versions import Writers
    from spark_jobs.materializer.engine.bucket_table import BucketTable


class UpdateDecoder:
    """The ``TableForm`` of partition updates.

    Args:
        writers: schemas of messages, compiled.
        avro: whether messages are Avro; otherwise they are JSON.
    """

    def __init__(self, writers: Writers, *, avro: bool) -> None:
        self._writers = writers
        self._avro = avro
        self.forget()

    def forget(self) -> None:
        """See ``TableForm``."""
        self._bindings: dict[str, Binding] = {}
        self._binding: Binding | None = None
        self._head, self._ident = b"", ""

    def describe(self, text: str) -> TableDescription:
        """See ``TableForm``."""
        version = self._writers.by_text(text).version
        shape = TableShape(
            tuple(sorted(version.constants.items())),
            (*version.key, *version.clustering),
            tuple(version.static.columns),
            tuple(version.regular.columns),
        )
        return TableDescription(shape, bool(version.clustering), partition_decoder(version))

    def decode(self, table: BucketTable, value: bytes) -> tuple[Binding, Any]:
        """A message, and the binding of its version."""
        if self._avro:
            if value[:HEAD] == self._head and self._binding is not None:
                binding = self._binding
                return binding, binding.writer.read(value, HEAD)
            binding = self._bind_writer(table, self._writers.by_id(schema_id(value)))
            update = binding.writer.read(value, HEAD)
            self._head, self._binding = value[:HEAD], binding
            return binding, update
        return self._decode_json(table, value)

    def _decode_json(self, table: BucketTable, value: bytes) -> tuple[Binding, Any]:
        writers = self._writers
        try:
            if value.startswith(b'{"schema"') and (parts := split_envelope(value)) is not None:
                binding = self._bind_writer(table, writers.by_description(parts[0]))
                return binding, binding.writer.version.decode_json(parts[1])
            last_binding = self._binding
            if last_binding is not None:
                try:
                    update = last_binding.writer.version.decode_json(value)
                    if update.source.schema == self._ident:
                        return last_binding, update
                except ValueError:
                    pass  # of another version, perhaps
            binding = self._bind_writer(table, writers.by_ident(value))
            update = binding.writer.version.decode_json(value)
            self._binding, self._ident = binding, update.source.schema
        except ValueError as error:
            raise Skippable(
                f"The message does not match the schema of its table: {error}. Set the input's format and encoding "
                "to what the topic has."
            ) from None
        return binding, update

    def _bind_writer(self, table: BucketTable, writer: WriterSchema) -> Binding:
        """The binding of a writer's schema; enters it into the catalog if it is new."""
        key = writer.text
        cached_binding = self._bindings.get(key)
        if cached_binding is not None:
            return cached_binding
        version = writer.version
        known_version = table.catalog.find(version.ident)
        if known_version is None:
            known_version = _enter_version(table, writer)
        binding = bind_version(writer, known_version, table.catalog.slots, table.live)
        self._bindings[key] = binding
        return binding


def _enter_version(table: BucketTable, writer: WriterSchema) -> KnownVersion:
    version = writer.version
    catalog = table.catalog
    known_version = catalog.add(
        version.ident, writer.order, version.constants["table_id"], version.static.columns, version.regular.columns
    )
    table.keep(known_version, writer.text)
    return known_version
