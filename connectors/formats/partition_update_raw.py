"""The raw partition update: the server's own serialized bytes of a mutation of one partition, in a thin struct.

The layout is in PARTITION_UPDATE.md. A message can be decoded without other messages: the schema's parameters hold the
table's definition and the version of the format of the bytes.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.cql.mutations.definition import parse_definition
from connectors.errors import Fatal, Skippable
from connectors.formats.names import schema_part
from connectors.formats.partition_update import CONSTANTS, PartitionUpdate, UpdateSource
from connectors.schema import BOOLEAN, BYTES, INT64, OPTIONAL_INT64, STRING, Schema, struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connectors.cql.mutations.definition import CqlTableDefinition

FORM: Final = "partition-update-raw"
FORM_VERSION: Final = "1"
#: Parameters of the schema, in addition to the form's and the constants: the version of the log's format that the bytes are
#: in, and the table's definition as ``CqlTableDefinition.text`` writes it.
LOG_VERSION: Final = "log.version"
DEFINITION: Final = "definition"
#: Versions of the log's format that are understood.
VERSIONS: Final = (7, 8, 9)


class RawForm(NamedTuple):
    """The contents of a schema's parameters.

    Attributes:
        source: the members of ``source`` that all messages of the schema share.
        definition: the table.
        version: of the format of the bytes.
    """

    source: UpdateSource
    definition: CqlTableDefinition
    version: int


class RawUpdate(NamedTuple):
    """One message. Its bytes begin with the table id and end with the end of the update.

    Attributes:
        source: where it was read.
        write_time: µs, the smallest in the bytes.
        update: the bytes.
    """

    source: UpdateSource
    write_time: int
    update: bytes


def raw_schema(
    source: UpdateSource, definition: CqlTableDefinition, version: int, position: Mapping[str, Schema]
) -> Schema:
    """The schema of a table's raw partition updates.

    Args:
        source: the members that all messages share.
        definition: the table.
        version: of the format of the bytes.
        position: schemas of the members of ``source.position``; optional ones.

    Raises:
        Fatal: the table has counters, whose changes can't be merged.
    """
    counters = [column.name for column in definition.columns if column.type.name == "counter"]
    if counters:
        raise Fatal(
            f"{definition} has counters ({', '.join(counters)}): changes of a counter can't be merged, so it has no "
            f"partition updates. Take it out of table.include.list, or switch its log off: "
            f"ALTER TABLE {definition} WITH cdc = false;"
        )
    base = ".".join(
        map(
            schema_part,
            (
                source.cluster or source.connector,
                source.keyspace,
                source.table,
                f"t_{source.table_id}",
                f"v_{source.schema_version}",
            ),
        )
    )
    return struct(
        f"{base}.PartitionUpdateRaw",
        {
            "source": struct(
                f"{base}.Source",
                {
                    "schema": STRING,
                    "snapshot": BOOLEAN,
                    "read_time": OPTIONAL_INT64,
                    "position": struct(f"{base}.Position", position, optional=True),
                },
            ),
            "write_time": INT64,
            "update": BYTES,
        },
        parameters=(
            ("form", FORM),
            ("form.version", FORM_VERSION),
            *((name, getattr(source, name)) for name in CONSTANTS),
            (LOG_VERSION, str(version)),
            (DEFINITION, definition.text()),
        ),
    )


def is_raw(schema: Schema) -> bool:
    """Whether ``raw_schema`` is one of raw partition updates."""
    return schema.parameter("form") == FORM


def form_of(parameters: Callable[[str], str | None]) -> RawForm:
    """Return the form that a schema's parameters describe.

    Args:
        parameters: gives a parameter by name: ``Schema.parameter``, or ``get`` of Avro's ``connect.parameters``.

    Raises:
        Fatal: they are not those of raw partition updates, or of a newer version of the form.
    """
    if parameters("form") != FORM:
        raise Fatal(
            f"A schema with form {parameters('form')!r} is not one of raw partition updates: its parameters need form="
            f"{FORM} (in Avro in connect.parameters; the converter's connect.meta.data must not be off)."
        )
    if parameters("form.version") != FORM_VERSION:
        raise Fatal(
            f"Raw partition updates of form.version {parameters('form.version')!r} can't be read: this release reads "
            f"version {FORM_VERSION}. Update the reader."
        )
    version, definition_json = parameters(LOG_VERSION) or "", parameters(DEFINITION)
    if not version.isdecimal() or int(version) not in VERSIONS or definition_json is None:
        raise Fatal(
            f"Raw partition updates with {LOG_VERSION}={version!r} and a definition of {len(definition_json or '')} characters "
            f"can't be read: the versions are {', '.join(map(str, VERSIONS))}, and {DEFINITION} is the table as JSON."
        )
    constants: dict[str, Any] = {name: parameters(name) or "" for name in CONSTANTS}
    return RawForm(UpdateSource(**constants), parse_definition(definition_json), int(version))


def read_message(value: Mapping[str, Any], constants: UpdateSource) -> RawUpdate:
    """The members of a message, as any converter read it back (JSON without schemas too: bytes as Base64).

    Args:
        value: the message.
        constants: of its schema (``RawForm.source``).

    Raises:
        Skippable: it does not have the form.
    """
    try:
        inner = value["source"]
        update = value["update"]
        if isinstance(update, str):
            update = base64.b64decode(update, validate=True)
        source = msgspec.structs.replace(
            constants, snapshot=inner["snapshot"], read_time=inner.get("read_time"), position=inner.get("position")
        )
        return RawUpdate(source, value["write_time"], update)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Skippable(
            f"The message does not have the form of a raw partition update of {constants.keyspace}."
            f"{constants.table}: {error!r}. Read it with the schema with which it was written."
        ) from None


def decode_raw(value: Mapping[str, Any], form: RawForm) -> PartitionUpdate:
    """The partition update in a message; plain code, for readers that are not in a hurry.

    Raises:
        Skippable: it does not have the form, or its bytes can't be decoded.
    """
    from connectors.cql.mutations.reference import read_update

    raw = read_message(value, form.source)
    update, end = read_update(raw.update, 0, form.definition, form.version, raw.source)
    if end != len(raw.update):
        raise Skippable(
            f"A raw partition update of {form.definition} ends at byte {end} of {len(raw.update)}: it is damaged, "
            "or its schema is another's. Read it with the schema with which it was written."
        )
    return update
