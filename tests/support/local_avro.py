"""AvroConverter without a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.options import ConfigDef
from worker.converters.avro_form.compile import compile_avro
from worker.converters.avro_form.rows import AvroRowForm
from worker.converters.base import Converter

if TYPE_CHECKING:
    from connectors.schema import Schema
    from connectors.wire import Encoding
    from worker.converters.avro_form.schema import AvroSettings
    from worker.converters.base import Encode


class LocalAvro(Converter):
    """AvroConverter without a registry: each schema has the same id."""

    config_def = ConfigDef([])
    null_needs_schema = False

    def __init__(self, settings: AvroSettings) -> None:
        self._settings = settings
        self._encoders: dict[Any, Any] = {}

    def encoder(self, topic: str, schema: Schema | None) -> Encode:
        del topic
        if schema not in self._encoders:
            self._encoders[schema] = compile_avro(schema, self._settings, b"head!")
        encode: Encode = self._encoders[schema]
        return encode

    def row_form(self, topic: str, encoding: Encoding, stem: str) -> AvroRowForm:
        del topic
        return AvroRowForm(encoding, self._settings, b"head!", stem)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        raise NotImplementedError
