"""The shapes of bodies of ``/flows``; see ``schemas`` for how they are read."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from worker.rest.shapes.schemas import ConfigValue  # noqa: TC001 - msgspec reads the annotation at run time

#: Records, or given rows, of one preview.
MOST_PREVIEW_ROWS: Final = 1000


# Requests.


class GivenRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A change for a preview."""

    table: Annotated[str, Meta(description="Its table: namespace, `database.table` or the table alone.", min_length=1)]
    row: Annotated[
        dict[str, Any],
        Meta(
            description="Columns and values; columns that are left out are null. Decimals with all digits as text, bytes as "
            "Base64, times as ISO 8601."
        ),
    ]
    op: (
        Annotated[
            str,
            Meta(
                pattern="^[iudb]$",
                description="i (insert; without it), u (update), d (delete) or b (the row before an update).",
                extra={"refusal": "The field 'op' of a row must be i, u, d or b"},
            ),
        ]
        | None
    ) = None


class PreviewRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A flow, and the rows to send through it."""

    config: Annotated[
        dict[str, ConfigValue],
        Meta(
            description="The configuration, as for `PUT /connectors/{connector}/config`.",
            extra={"missing": "The field 'config' is missing: an object with the flow's configuration is expected"},
        ),
    ]
    limit: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MOST_PREVIEW_ROWS,
                description="How many of the newest records of the inputs are read; without it 20.",
                extra={"refusal": f"The field 'limit' must be a whole number from 1 to {MOST_PREVIEW_ROWS}"},
            ),
        ]
        | None
    ) = None
    rows: (
        Annotated[list[GivenRow], Meta(description="Rows to take instead of those in Kafka, in order; at most 1000.")]
        | None
    ) = None
    timeout_ms: (
        Annotated[
            int,
            Meta(
                ge=100,
                le=600_000,
                description="The preview ends after this time in milliseconds with what it has; without it, and at most, "
                "shortly before `validate.timeout.ms` of the worker.",
                extra={"refusal": "The field 'timeout_ms' must be a whole number from 100 to 600000"},
            ),
        ]
        | None
    ) = None


# Answers.


class FlowError(Struct):
    """Why a flow can't work: the option, and what to do."""

    option: Annotated[str, Meta(description="The option, or `transform.step.NAME` of a step; empty: several.")]
    message: str


class FlowColumn(Struct):
    """A column of a table in a flow."""

    name: str
    type: Annotated[str | None, Meta(description="Spark's name of the type; null: known at the start.")]
    nullable: bool
    key: bool
    from_: (
        Annotated[
            list[dict[str, str]],
            Meta(description="The columns of the source's tables that it is made of: table and column."),
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)
    expression: (
        Annotated[str, Meta(description="What computes it; absent for a column that is passed on.")] | UnsetType
    ) = UNSET


class FlowTable(Struct):
    """A table in a flow."""

    table: str
    key: list[str]
    columns: list[FlowColumn]
    conditions: (
        Annotated[
            list[dict[str, str]], Meta(description="Conditions for rows to pass: table before the step, condition.")
        ]
        | UnsetType
    ) = UNSET


class FlowStep(Struct):
    """A step of a flow."""

    name: str
    type: str
    tables: (
        Annotated[list[FlowTable], Meta(description="The tables after it; absent where they are not known.")]
        | UnsetType
    ) = UNSET
    matches: Annotated[list[str], Meta(description="The tables before it that it transforms.")] | UnsetType = UNSET


class FlowSink(Struct):
    """A sink of a flow."""

    name: str
    type: str
    guarantee: Literal["exactly-once", "at-least-once", "none"]
    reason: str
    plan: Annotated[list[str], Meta(description="What it would do, line by line.")]


class FlowState(Struct):
    """The state that a part of a flow keeps from batch to batch."""

    of: str
    keeps: str


class FlowEffect(Struct):
    """The effect of an edit on a part of the running flow."""

    part: str
    effect: Literal["kept", "dropped", "changed", "refused"]
    reason: str
    sink: Annotated[str, Meta(description="The sink that it is about; absent in a flow with one sink.")] | UnsetType = (
        UNSET
    )


class FlowEdit(Struct):
    """The configuration compared with the connector of its name."""

    changed: Annotated[list[str], Meta(description="Names of options whose value differs.")]
    effects: list[FlowEffect]
    tables: Annotated[
        list[dict[str, Any]], Meta(description="Tables that the sink gets and that change: table, change, columns.")
    ]


class FlowPlan(Struct):
    """The plan of a flow. An answer to options that are not valid has `name`, `valid` and `errors` alone."""

    name: str
    valid: bool
    errors: list[FlowError]
    source: Annotated[list[str], Meta(description="What it reads, line by line.")] | UnsetType = UNSET
    tables: Annotated[list[FlowTable], Meta(description="The tables before the first step.")] | UnsetType = UNSET
    steps: list[FlowStep] | UnsetType = UNSET
    sinks: list[FlowSink] | UnsetType = UNSET
    state: list[FlowState] | UnsetType = UNSET
    edit: Annotated[FlowEdit | None, Meta(description="Null: there is no connector of that name.")] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET


class PreviewRow(Struct):
    """A change in a preview."""

    record: Annotated[str, Meta(description="Where it comes from: topic, partition and offset of the record.")]
    op: Annotated[str, Meta(description="i, u, d or b (the row before an update).")]
    values: Annotated[dict[str, Any], Meta(description="By column; values that are hidden are `***`.")]


class PreviewTable(Struct):
    """The changes of a table at one point of a flow."""

    table: str
    key: list[str]
    columns: list[FlowColumn]
    rows: list[PreviewRow]
    count: Annotated[int, Meta(description="How many rows there are; `rows` may have fewer.")]


class PreviewProblem(Struct):
    """A record or row that can't be decoded or computed."""

    record: str
    reason: str
    table: str | UnsetType = UNSET
    values: dict[str, Any] | UnsetType = UNSET


class PreviewDropped(Struct):
    """A row that a step leaves out, or turns into a delete."""

    record: str
    table: str
    op: str
    reason: str
    values: dict[str, Any]


class PreviewStep(Struct):
    """The rows before and after a step."""

    name: str
    type: str
    rows_in: int
    rows_out: int
    tables: list[PreviewTable]
    dropped: list[PreviewDropped]
    changed: Annotated[list[PreviewDropped], Meta(description="Rows whose operation changes, and why.")]
    errors: list[PreviewProblem]
    dropped_count: int
    changed_count: int
    error_count: int
    error: Annotated[str, Meta(description="Why the step can't be computed at all; no step follows.")] | UnsetType = (
        UNSET
    )


class FlowPreview(Struct):
    """Rows on their way through a flow. Nothing was written, and no consumer group and no checkpoint was touched."""

    name: str
    source: Annotated[Literal["newest", "given"], Meta(description="Where the rows come from.")]
    records: Annotated[int, Meta(description="How many records were read, or rows given.")]
    inputs: Annotated[list[PreviewTable], Meta(description="The tables after decoding and masking.")]
    errors: Annotated[list[PreviewProblem], Meta(description="Records that can't be decoded.")]
    steps: list[PreviewStep]
    warnings: Annotated[list[str], Meta(description="What was cut off, and what could not be done.")]
    application: Annotated[str, Meta(description="The Spark application that did it.")]
    warm: Annotated[bool, Meta(description="Whether that one was running already.")]
    duration_ms: int
    error: Annotated[str, Meta(description="Why there are no (further) rows.")] | UnsetType = UNSET
