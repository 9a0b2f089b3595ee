"""The shapes of bodies of ``/rules``; see ``schemas`` for how they are read."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

#: Lines of one request.
MOST_LINES: Final = 10_000

Rules = Annotated[
    Any,
    Meta(
        description="A rule set: an object, or YAML or JSON as text.",
        extra={"missing": "A rule set is missing: an object, or YAML or JSON as text, is expected"},
    ),
]
Lines = Annotated[
    list[str],
    Meta(
        max_length=MOST_LINES,
        description=f"Raw lines, at most {MOST_LINES}.",
        extra={"missing": "The field 'lines' is missing: a list of raw lines is expected"},
    ),
]
SomeLines = (
    Annotated[
        list[str],
        Meta(max_length=MOST_LINES, description=f"Raw lines, at most {MOST_LINES}. Give either these or a connector."),
    ]
    | None
)
ConnectorName = (
    Annotated[str, Meta(min_length=1, description="A connector of class `logs`, from which lines are taken.")] | None
)
Source = Annotated[
    Literal["INPUT", "UNKNOWN"],
    Meta(
        description="With a connector: its newest raw lines (its files on the worker of its first task, or its topics), or the "
        "newest lines of its `unknown_table`. In any case; INPUT without it.",
        extra={"absent": "INPUT"},
    ),
]
Count = Annotated[
    int,
    Meta(
        ge=1,
        le=MOST_LINES,
        description=f"With a connector: how many lines, at most {MOST_LINES}; 1000 without it.",
        extra={"absent": 1000, "refusal": f"The field 'count' must be a whole number from 1 to {MOST_LINES}"},
    ),
]
RowsByTable = Annotated[dict[str, list[dict[str, Any]]], Meta(description="Rows by table.")]


# Requests.


class RulesPreviewRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules, and lines to try them on."""

    rules: Rules
    lines: SomeLines = None
    connector: ConnectorName = None
    source: Source = "INPUT"
    count: Count = 1000


class RulesDiffRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Two versions of rules, and lines to compare them on."""

    before: Rules
    after: Rules
    lines: SomeLines = None
    connector: ConnectorName = None
    source: Source = "INPUT"
    count: Count = 1000


class RulesRead(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules to show in another form."""

    rules: Rules


class RuleSetRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule set to save."""

    rules: Rules
    comment: Annotated[str, Meta(description="What its author says of this version.", extra={"absent": ""})] = ""


class ReplayPosition(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to start with a source partition."""

    partition: Annotated[dict[str, Any], Meta(description="As in the connector's offsets.")]
    offset: Annotated[
        dict[str, Any],
        Meta(
            description="position of a file (with fingerprint where it was rotated since), offset of a topic's partition."
        ),
    ]


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines to give to the rules again."""

    source: Annotated[
        Literal["INPUT", "UNKNOWN"],
        Meta(
            description="The lines of `unknown_table`, or all lines of the connector's files or topics. In any case; UNKNOWN "
            "without it.",
            extra={"absent": "UNKNOWN"},
        ),
    ] = "UNKNOWN"
    positions: (
        Annotated[
            list[ReplayPosition],
            Meta(
                max_length=1000,
                description="With INPUT: where to start, instead of since; other source partitions are not replayed.",
            ),
        ]
        | None
    ) = None
    replaces: (
        Annotated[
            int,
            Meta(
                ge=1,
                description="With INPUT: the oldest version of the connector's rule set whose rows are replaced. Rows that it "
                "or a later version makes of a line, and the version that runs does not, are deleted. Without it they stay.",
                extra={"refusal": "The field 'replaces' must be the number of a version, from 1"},
            ),
        ]
        | None
    ) = None
    since: (
        Annotated[
            str,
            Meta(
                description="Only lines from this time on, such as 2026-11-26T17:00:00Z; without it all that there are."
            ),
        ]
        | None
    ) = None
    id: (
        Annotated[
            str,
            Meta(
                pattern=r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$",
                extra={
                    "refusal": "The field 'id' must be 1 to 64 letters, digits, '.', '_' or '-'; without it an id is chosen"
                },
            ),
        ]
        | None
    ) = None


class RulesProposalRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines to propose rules for."""

    lines: Lines
    table: Annotated[
        str,
        Meta(
            description="The table of the proposed rules; `lines` without it.",
            pattern="^[A-Za-z_][A-Za-z0-9_]*$",
            extra={"absent": "lines"},
        ),
    ] = "lines"


# Answers.


class RuleOption(Struct):
    """An option of an operator."""

    name: str
    type: str
    default: Annotated[str, Meta(description="As JSON; empty: the option is required.")]
    text: Annotated[str, Meta(description="What it does.")]


class RuleOperator(Struct):
    """An operator of steps."""

    name: str
    text: Annotated[str, Meta(description="What it does.")]
    options: list[RuleOption]


class ReadRules(Struct):
    """A rule set in both of its forms."""

    rules: Annotated[Any, Meta(description="As an object.")]
    text: Annotated[str, Meta(description="As YAML.")]


class RuleStepLine(Struct):
    """A step and a line."""

    line: Annotated[int, Meta(description="The number of the line, from 0.")]
    status: Annotated[str, Meta(description="success, skipped, dropped, error or ignored.")]
    records_in: list[dict[str, Any]]
    records_out: list[dict[str, Any]]
    reason: Annotated[str, Meta(description="Why, with ignored, dropped on purpose, and error.")]


class RuleStep(Struct):
    """A step and all lines that reached it."""

    step: Annotated[int, Meta(description="Its number, from 1.")]
    operator: str
    counts: Annotated[dict[str, int], Meta(description="Lines by status.")]
    microseconds: Annotated[float, Meta(description="How long it took for all lines.")]
    lines: list[RuleStepLine]


class RuleGroup(Struct):
    """A group and the lines that it was given: those that no earlier group of its table accepts."""

    table: str
    group: str
    tried: int
    accepted: int
    percent: Annotated[float, Meta(description="Accepted lines of all lines.")]
    steps: list[RuleStep]


class RuleLine(Struct):
    """The rows of a line."""

    line: str
    rows: RowsByTable
    unknown: Annotated[bool, Meta(description="Whether it goes to `unknown_table`.")]


class FailedGoldenLine(Struct):
    """A golden line that makes other rows than it must."""

    line: str
    expected: RowsByTable
    actual: RowsByTable


class RulesPreview(Struct):
    """Lines on their way through a rule set."""

    groups: list[RuleGroup]
    lines: list[RuleLine]
    golden: Annotated[list[FailedGoldenLine], Meta(description="Golden lines of the rule set that fail.")]
    conflicts: Annotated[
        list[str],
        Meta(description="With a connector: what its schema registry would refuse of the schemas that the rules make."),
    ]
    warnings: Annotated[
        list[str],
        Meta(description="With a connector: what could not be checked, such as schemas that transforms make."),
    ]


class ChangedLine(Struct):
    """A line whose rows differ."""

    number: Annotated[int, Meta(description="The number of the line, from 0.")]
    line: str
    changes: Annotated[list[str], Meta(description="What differs: table, columns, rows (their number) or values.")]
    before: RowsByTable
    after: RowsByTable


class RulesDiff(Struct):
    """Two versions of rules, compared on lines."""

    lines: Annotated[list[ChangedLine], Meta(description="Lines whose rows differ.")]
    versions: Annotated[list[str], Meta(description="Tables whose columns changed and whose version did not rise.")]
    golden: Annotated[list[FailedGoldenLine], Meta(description="Golden lines of `after` that fail.")]


class LinePattern(Struct):
    """Lines that are alike."""

    pattern: Annotated[str, Meta(description="Their words, with `<*>` where they differ.")]
    count: Annotated[int, Meta(description="How many lines.")]
    examples: Annotated[list[str], Meta(description="The first three.")]
    rules: Annotated[
        dict[str, Any] | None, Meta(description="A rule set that accepts all of them; null: none was found.")
    ]


class Replay(Struct):
    """Lines that are given to the rules again."""

    id: str
    state: Annotated[str, Meta(description="waiting, running, paused, cancelled or completed.")]
    origin: str
    created_ms: Annotated[int, Meta(description="When it was asked for, milliseconds since 1970.")]
    replay: Annotated[dict[str, Any], Meta(description="What is replayed.")]
    lines: Annotated[int | UnsetType, Meta(description="Lines that were given to the rules.")] = UNSET
    accepted: Annotated[int | UnsetType, Meta(description="Lines of these that the rules accept now.")] = UNSET
    records_left: Annotated[
        int | UnsetType | None,
        Meta(description="Records of topics that are yet to be read; null before it begins, and of files."),
    ] = UNSET


class FailedStep(Struct):
    """A step at which unknown lines failed."""

    table: str | None
    group: str | None
    step: int | None
    operator: str | None
    lines: Annotated[int, Meta(description="How many lines.")]
    reason: Annotated[str | None, Meta(description="Of the newest of them.")]


class UnknownLines(Struct):
    """The newest lines that no rule accepts, by pattern."""

    connector: str
    topic: Annotated[str, Meta(description="Where they are.")]
    lines: Annotated[int, Meta(description="How many were looked at.")]
    unreadable: Annotated[int, Meta(description="Records of the topic that are no such lines.")]
    replayed: Annotated[
        int, Meta(description="Lines among the newest that a replay has made rows of; they are left out.")
    ]
    first_ms: Annotated[int | None, Meta(description="The time of the oldest of them, milliseconds since 1970.")]
    last_ms: Annotated[int | None, Meta(description="That of the newest.")]
    patterns: Annotated[list[LinePattern], Meta(description="Those with the most lines first; at most 100.")]
    failures: Annotated[list[FailedStep], Meta(description="Where they failed; at most 50.")]


class RuleVersion(Struct):
    """A version of a rule set."""

    version: int
    created_ms: Annotated[int, Meta(description="When it was saved, milliseconds since 1970.")]
    forced: Annotated[bool, Meta(description="Whether it was saved with `force`.")]
    comment: str


class RuleVersionRules(RuleVersion):
    """A version of a rule set, with its rules."""

    name: str
    rules: Annotated[Any, Meta(description="As they were saved.")]


class RuleSetInfo(RuleVersion):
    """A rule set, and its newest version."""

    name: str
    versions: Annotated[int, Meta(description="How many versions there are.")]
    connectors: Annotated[
        dict[str, int | None], Meta(description="The connectors that name it, and the version that each runs.")
    ]


class RuleSet(RuleSetInfo):
    """A rule set with its newest rules."""

    rules: Annotated[Any, Meta(description="As they were saved.")]
    warnings: Annotated[
        list[str] | UnsetType,
        Meta(
            description="In the answer to `PUT`: what could not be checked, such as schemas that the transforms of a connector "
            "make."
        ),
    ] = UNSET


class RulesProposal(Struct):
    """Patterns of lines, those with the most lines first; at most 100."""

    patterns: list[LinePattern]
