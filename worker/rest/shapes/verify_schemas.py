"""The shapes of bodies of ``/connectors/{connector}/verify``; see ``schemas`` for how they are read."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from worker.rest.shapes.schemas import Snapshot


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
    settle_s: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=3600,
                description="Scylla and Cassandra: how long a difference must last, in seconds, until it counts; null: as "
                "long as a change may take until it is on its way.",
                extra={"refusal": "The field 'settle_s' must be a whole number from 0 to 3600"},
            ),
        ]
        | None
    ) = None
    rows_per_s: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000_000,
            description="Rows to read of the source per second at most; 0: no limit.",
            extra={"absent": 0, "refusal": "The field 'rows_per_s' must be a whole number from 0 to 100000000"},
        ),
    ] = 0
    repair: Annotated[
        bool,
        Meta(
            description="Send rows that differ again at the end, by a snapshot of them.",
            extra={"absent": False, "refusal": "The field 'repair' must be true or false"},
        ),
    ] = False


class VerifiedRow(Struct):
    """A row that differs, as the connector's masks and transforms leave it."""

    kind: Annotated[str, Meta(description="missing, extra, different or unsettled.")]
    key: Annotated[str, Meta(description="As in `examples`.")]
    source: Annotated[
        dict[str, str] | None,
        Meta(
            description="Columns with their values as JSON text, of 200 characters and 20 columns at most; of a row that both "
            "sides have, the columns that differ. null: the source does not have the row."
        ),
    ]
    topic: Annotated[dict[str, str] | None, Meta(description="Likewise on the topic.")]
    columns_left_out: Annotated[int, Meta(description="Further columns that differ.")] = 0


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
    differences: Annotated[
        list[VerifiedRow],
        Meta(
            description="Ten of these rows of each kind at most, with what both sides say. The worker that compared keeps them "
            "in memory: empty after it has stopped."
        ),
    ]
    key_ranges: Annotated[list[list[int]], Meta(description="Ranges of the first key column in which rows differ.")]
    condition: Annotated[
        str | None,
        Meta(
            description="Of the rows that a repair sends again; empty: the whole table; null: the source takes no snapshots on "
            "request."
        ),
    ]
    note: str
    source_table: Annotated[
        str | None,
        Meta(description="Of a flow, whose `table` is a topic: the table of the source whose rows the topic has."),
    ] = None


class VerifyResult(Struct):
    """The result of a verification."""

    equal: bool
    notes: list[str]
    tables: list[VerifiedTable]


class RepairSnapshot(Snapshot, kw_only=True):
    """The snapshot that sends rows again."""

    connector: Annotated[
        str, Meta(description="The connector that was asked for it: of a flow, the source of its topics.")
    ]


class VerifyRun(Struct):
    """A verification."""

    state: Annotated[str, Meta(description="scheduled, running, completed, failed or cancelled.")]
    started_ms: Annotated[int, Meta(description="Milliseconds since 1970.")]
    ended_ms: int | None
    tables: Annotated[str, Meta(description="The expression of the request.")]
    progress: Annotated[str, Meta(description="How far it is.")]
    error: Annotated[
        str | None, Meta(description="Why it failed; of one that is completed, why its rows were not sent again.")
    ]
    tables_total: Annotated[int | None, Meta(description="Tables to compare; null: not known yet.")] = None
    repair: Annotated[str | None, Meta(description="The snapshot that was asked for to send rows again.")] = None
    repair_connector: Annotated[
        str | None, Meta(description="The connector that was asked for it: of a flow, the source of its topics.")
    ] = None
    next_ms: Annotated[
        int | None, Meta(description="When the next one starts (`verify.interval.ms`); null: it is not planned.")
    ] = None
    result: VerifyResult | UnsetType | None = UNSET
