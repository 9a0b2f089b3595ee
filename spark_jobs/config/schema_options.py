"""The options that say what a sink does when the schema of a table changes while the flow runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigKey, ConfigProblem, ConfigType, Importance, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

NEW_TABLE: Final = "new.table"
NEW_COLUMN: Final = "new.column"
DROPPED_COLUMN: Final = "dropped.column"
WIDER_TYPE: Final = "wider.type"
INCOMPATIBLE_TYPE: Final = "incompatible.type"
KINDS: Final = (NEW_TABLE, NEW_COLUMN, DROPPED_COLUMN, WIDER_TYPE, INCOMPATIBLE_TYPE)

EVOLVE: Final = "evolve"
TRY_EVOLVE: Final = "try_evolve"
LENIENT: Final = "lenient"
IGNORE: Final = "ignore"
FAIL: Final = "fail"
POLICIES: Final = (EVOLVE, TRY_EVOLVE, LENIENT, IGNORE, FAIL)

PREFIX: Final = "sink.schema."
CHANGES: Final = f"{PREFIX}changes"
_GROUP: Final = "Transformation and sink"
_MEANINGS: Final = {
    NEW_TABLE: "a table that appears after the first batch, also one that was renamed",
    NEW_COLUMN: "a new column, also one that was renamed",
    DROPPED_COLUMN: "a column that new rows don't have any more",
    WIDER_TYPE: "a type that holds all old values, such as `bigint` after `int`",
    INCOMPATIBLE_TYPE: "any other change of a type, such as text after a number",
}

SCHEMA_KEYS: Final = (
    ConfigKey(
        name=CHANGES,
        type=ConfigType.STRING,
        default=EVOLVE,
        group=_GROUP,
        validator=one_of(*POLICIES),
        doc="What the sink does when the schema of a table changes while the flow runs. `evolve`: the target follows; where it "
        "can't, the sink stops. `try_evolve`: the target follows; a change that it refuses is ignored. `lenient`: the target "
        "gets new tables and columns, and no column of it is changed; values that don't fit go as text to a column of their "
        "own. `ignore`: the target is not changed; values that don't fit are null. `fail`: the sink stops before the first "
        "row. No policy loses rows. See [schema changes](../jobs/schema-changes.md).",
    ),
    *(
        ConfigKey(
            name=f"{PREFIX}{kind}",
            type=ConfigType.STRING,
            default=None,
            importance=Importance.LOW,
            group=_GROUP,
            validator=one_of(*POLICIES),
            doc=f"The policy for {meaning}. Not set: `{CHANGES}`.",
        )
        for kind, meaning in _MEANINGS.items()
    ),
)


@dataclass(frozen=True, slots=True)
class SchemaPolicies:
    """The policy for each kind of change."""

    by_kind: Mapping[str, str]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> SchemaPolicies:
        """As the parsed options say."""
        general = config.get(CHANGES) or EVOLVE
        return cls({kind: config.get(f"{PREFIX}{kind}") or general for kind in KINDS})

    def __getitem__(self, kind: str) -> str:
        return self.by_kind[kind]

    @property
    def takes_text(self) -> bool:
        """Whether a column whose old and new types have no common one is read as text, because the sink handles it."""
        return self[INCOMPATIBLE_TYPE] in (TRY_EVOLVE, LENIENT, IGNORE)


def find_policy_option(kind: str, config: Mapping[str, Any]) -> str:
    """The option that decides on a kind of change."""
    return f"{PREFIX}{kind}" if config.get(f"{PREFIX}{kind}") else CHANGES


def check_policies(config: Mapping[str, Any]) -> list[ConfigProblem]:
    """Options that don't go together. Pure."""
    policies = SchemaPolicies.of(config)
    set_options = [
        name for name in (CHANGES, *(f"{PREFIX}{kind}" for kind in KINDS)) if config.get(name) not in (None, EVOLVE)
    ]
    if not set_options:
        return []
    passed_on = [name for name in ("sink.kafka.content", "sink.console.content") if config.get(name) == "records"]
    problems = [
        ConfigProblem(
            set_options[0],
            f"{set_options[0]} has no effect with {name}=records, which passes records on as they are: remove it",
        )
        for name in passed_on
    ]
    if config["transform.type"] != "none":
        problem = f"{set_options[0]} has no effect with transform.type={config['transform.type']}: remove it"
        problems.append(ConfigProblem(set_options[0], problem))
    kept = config["errors.tolerance"] == "all" and config["errors.deadletterqueue.topic.name"]
    if policies[NEW_TABLE] == IGNORE and not kept:
        name = find_policy_option(NEW_TABLE, config)
        problem = (
            f"{name}=ignore puts the records of new tables into the dead letter topic, so that they are not lost: set "
            f"errors.tolerance=all and errors.deadletterqueue.topic.name, or {PREFIX}{NEW_TABLE}=lenient"
        )
        problems.append(ConfigProblem(name, problem))
    return problems
