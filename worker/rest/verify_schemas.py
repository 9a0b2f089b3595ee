"""The shapes of bodies of ``/connectors/{connector}/verify``; see ``schemas`` for how they are read."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType


class VerifyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables to compare."""

    tables: Annotated[
        str,
        Meta(
            description="A regular expression for whole names, such as `shop\\.orders`; empty: all tables.",
            extra={"absent": ""},
        ),
    ] = ""
    examples: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Keys to show of each kind of difference of a table; 100 without it.",
            extra={"absent": 100, "refusal": "The field 'examples' must be a whole number from 0 to 1000"},
        ),
    ] = 100
    timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="How long to wait, in seconds, until the connector has reached the tables' state; 300 without it.",
            extra={"absent": 300, "refusal": "The field 'timeout_s' must be a whole number from 1 to 86400"},
        ),
    ] = 300


class VerifiedTable(Struct):
    """A table, compared."""

    table: str
    topics: list[str]
    equal: bool
    rows: Annotated[dict[str, int], Meta(description="In the source and on the topic.")]
    checksum: dict[str, str]
    missing: Annotated[int, Meta(description="Rows that are not on the topic.")]
    extra: Annotated[int, Meta(description="Rows that are only on the topic.")]
    different: Annotated[int, Meta(description="Rows with other contents.")]
    unsettled: Annotated[int, Meta(description="Rows that differ and have a later event.")]
    older_structure: Annotated[int, Meta(description="Rows that were sent before a column came or went.")]
    examples: Annotated[dict[str, list[str]], Meta(description="Keys by kind of difference.")]
    key_ranges: Annotated[list[list[int]], Meta(description="Ranges of the first key column in which rows differ.")]
    note: str


class VerifyResult(Struct):
    """The result of a verification."""

    equal: bool
    notes: list[str]
    tables: list[VerifiedTable]


class VerifyRun(Struct):
    """A verification."""

    state: Annotated[str, Meta(description="running, completed, failed or cancelled.")]
    started_ms: Annotated[int, Meta(description="Milliseconds since 1970.")]
    ended_ms: int | None
    tables: Annotated[str, Meta(description="The expression of the request.")]
    progress: Annotated[str, Meta(description="How far it is.")]
    error: Annotated[str | None, Meta(description="Why it failed.")]
    result: VerifyResult | UnsetType | None = UNSET
