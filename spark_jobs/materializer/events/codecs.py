"""The codec of a table's events: by form, encoding and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.formats.masks.masking import parse_rules
from spark_jobs.materializer.events.avro import AvroCodec
from spark_jobs.materializer.events.field_names import NamedFieldsCodec, make_row_namer
from spark_jobs.materializer.events.json import JsonCodec
from spark_jobs.materializer.events.masked import MaskedCodec, masked_shape, masks_of
from spark_jobs.materializer.events.ums import UmsCodec

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_jobs.materializer.engine.model import MergeOptions
    from spark_jobs.materializer.events.forms import EventCodec, TableShape


def make_codec(options: MergeOptions, shape: TableShape, register: Callable[[str, str], int]) -> EventCodec:
    """The codec for one version of a table, which masks columns by ``options.masks``.

    Args:
        options: say form, encoding and masks.
        shape: the table.
        register: registers a schema: (subject, Avro text) -> id. Called for Avro only.

    Raises:
        Fatal: the form can't be written in the encoding (a schema is needed that the input does not tell), or a column that
            a rule names can't be masked.
        Retriable, Skippable: as ``register``.
    """
    codec = _masked_codec(options, shape, register) if options.masks else _plain_codec(options, shape, register)
    if make_row_namer(shape.columns) is None:
        return codec
    return NamedFieldsCodec(codec, shape)


def _masked_codec(options: MergeOptions, shape: TableShape, register: Callable[[str, str], int]) -> EventCodec:
    masks = masks_of(shape, parse_rules(dict(options.masks), debezium=False))
    return MaskedCodec(_plain_codec(options, masked_shape(shape, masks), register), shape, masks)


def _plain_codec(options: MergeOptions, shape: TableShape, register: Callable[[str, str], int]) -> EventCodec:
    if options.output_format == "ums":
        return UmsCodec(options, shape, register)
    if options.output_encoding == "avro":
        return AvroCodec(options, shape, register)
    return JsonCodec(options, shape)
