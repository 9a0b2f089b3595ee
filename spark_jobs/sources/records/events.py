"""Debezium's events in JSON without their table's schema: subject and rows, and why one gives no row. Pure."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from connectors.errors import Skippable
from spark_jobs.sources.records.reader import EnvelopeSource, ValueKind, classify_value, namespace_of

OPS: Final = frozenset("crudtm")
TRUNCATE: Final = (
    "The event is a TRUNCATE, which empties the table; no sink takes it as a change of rows. Empty the target by "
    "hand and skip the event, or set source.truncates=ignore."
)
NO_AFTER: Final = (
    "The event has no row after the change (after is null), so there is nothing to write. Let the connector send it "
    "(Scylla: cdc.include.after=full)."
)
NO_KEY: Final = (
    ", in the row and in the record's key. Such an event of Scylla is of a static column: use the materializer "
    "(output.format=partition-update, transform.type=materialize), which gives whole rows."
)


class LooseEvent(msgspec.Struct, gc=False):
    """An envelope without a schema, as far as it does not depend on its table."""

    op: str
    after: dict[str, Any] | None = None
    before: msgspec.Raw = msgspec.Raw(b"null")
    source: EnvelopeSource = msgspec.field(default_factory=EnvelopeSource)


_event: Final = msgspec.json.Decoder(LooseEvent)
_image: Final = msgspec.json.Decoder(dict[str, Any] | None)


def read_event(value: bytes) -> LooseEvent:
    """The event in an envelope without a schema.

    Raises:
        Skippable: it is not an event, whatever its table looks like.
    """
    try:
        event = _event.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Skippable(f"The value is no Debezium envelope: {error}. Set source.format=plain for flat rows.") from None
    if event.op not in OPS:
        raise Skippable(f"The event's op is {event.op!r}; known are c, r, u, d, t, m.")
    if event.op in {"c", "r", "u"} and event.after is None:
        raise Skippable(NO_AFTER)
    return event


def list_images(event: LooseEvent) -> list[dict[str, Any]]:
    """The rows in an event, after and before the change; what is no row is left out."""
    rows = [event.after]
    with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):  # a task that has to read it says so
        rows.append(_image.decode(event.before))
    return [row for row in rows if row is not None]


def find_subject(value: bytes, topic: str, *, envelope: bool) -> tuple[ValueKind, str | bytes]:
    """Find the subject of a JSON record: its table if it has no schema, else the text that represents its schema.

    Raises:
        Skippable: it has no subject; only the search for schemas reports such records.
    """
    kind, schema_text = classify_value(value)
    if kind is ValueKind.SCHEMA:
        return kind, schema_text
    if kind is ValueKind.BAD:
        raise Skippable("The value is no JSON object.")
    return kind, namespace_of(read_event(value).source, topic) if envelope else topic
