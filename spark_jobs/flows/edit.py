"""The effects of an edit of a flow, by comparing the old and the new configuration: kept, dropped, changed. Pure, no Spark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.config.keys import HISTORY, KAFKA, MATERIALIZE, SOURCE_TYPE, STARTING_GROUP, STEP_PREFIX, STEPS, TABLES
from spark_jobs.flows.address import spark_settings
from spark_jobs.steps.state.definition import describe_differences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.options import Config
    from spark_jobs.contract import TableSchema
    from spark_jobs.job import Job
    from spark_jobs.steps.contract import Step

KEPT: Final = "kept"
DROPPED: Final = "dropped"
CHANGED: Final = "changed"
REFUSED: Final = "refused"
#: Options that say nothing about what the flow does; a start with other values of them changes no result.
_SILENT: Final = (
    "connector.class", "tasks.max", "metrics.", "trigger.", "stop.timeout.ms", "errors.retry.", "preview.",
)  # fmt: skip
_DECODING: Final = ("source.format", "source.value.encoding", "source.key.encoding", "source.key.columns")


@dataclass(frozen=True, slots=True)
class EditEffect:
    """One consequence of an edit.

    Attributes:
        part: what it is about (``position``, ``schemas``, ``steps``, ``sink`` ...).
        effect: ``kept``, ``dropped``, ``changed`` or ``refused``.
        reason: a sentence.
        sink: the name of the sink that it is about, in a flow with several.
    """

    part: str
    effect: str
    reason: str
    sink: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """The steps of a flow before and after an edit."""

    old: Sequence[Step] = ()
    new: Sequence[Step] = ()


NO_STEPS: Final = Edit()


def changed_options(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Names of options whose text differs; never values, as some are secret."""
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def flow_effects(old: Sequence[Job], new: Sequence[Job], steps: Edit = NO_STEPS) -> list[EditEffect]:
    """The effects on a running flow, for each of its sinks.

    A sink is the same as before if its job has the same name.

    Args:
        old: the jobs of the running flow.
        new: the jobs that shall replace them.
        steps: as for ``find_edit_effects``.
    """
    if len(old) == len(new) == 1:
        return find_edit_effects(old[0].config, new[0].config, steps)
    earlier = {job.name: job for job in old}
    result = []
    for job in new:
        before = earlier.pop(job.name, None)
        if before is None:
            begin = job.config["source.starting.offsets"]
            description = f"it is new and begins at source.starting.offsets={begin}, if {job.checkpoint} is empty"
            listed = [EditEffect("sink", CHANGED, description)]
        elif not changed_options(before.config.raw, job.config.raw):
            listed = [EditEffect("sink", KEPT, "its options and its position stay; it may restart with the flow")]
        else:
            listed = find_edit_effects(before.config, job.config, steps)
        result += [replace(effect, sink=job.member_name) for effect in listed]
    for job in earlier.values():
        description = (
            f"it is not written any more; its position stays in {job.checkpoint}, and counts if the sink comes back"
        )
        result.append(EditEffect("sink", DROPPED, description, job.member_name))
    return result


def find_edit_effects(old: Config, new: Config, steps: Edit = NO_STEPS) -> list[EditEffect]:
    """The effects on the running flow ``old`` when it continues as ``new``.

    Args:
        old: the running configuration, with effective values.
        new: the configuration that shall replace it.
        steps: of both.
    """
    changed = changed_options(old.raw, new.raw)
    if not changed:
        return [EditEffect("flow", KEPT, "nothing changes: the configuration is the running one")]
    result = [_restart_effects(old, new, changed)]
    if old["checkpoint.location"] != new["checkpoint.location"]:
        result += [
            EditEffect(
                "position",
                DROPPED,
                f"checkpoint.location changes from {old['checkpoint.location']} to {new['checkpoint.location']}: the flow "
                "continues from what is there; an empty folder means source.starting.offsets="
                f"{new['source.starting.offsets']}, so rows may come again",
            ),
            EditEffect("schemas", DROPPED, "the tables seen so far are in the old checkpoint and are found again"),
        ]
    else:
        result.append(EditEffect("position", KEPT, f"the checkpoint {new['checkpoint.location']} stays"))
        result += (
            _find_topic_effects(old, new)
            if old[SOURCE_TYPE] == new[SOURCE_TYPE] == KAFKA
            else _find_input_effects(old, new, changed)
        )
        result += _find_decoding_effects(changed)
    for option in ("source.starting.offsets", STARTING_GROUP):
        if any(name.startswith(option) for name in changed):
            result.append(
                EditEffect(option, KEPT, "has no effect: the checkpoint says where the flow continues")
                if old["checkpoint.location"] == new["checkpoint.location"]
                else EditEffect(option, CHANGED, "counts for an empty checkpoint")
            )
    if old["kafka.group.id"] != new["kafka.group.id"]:
        result.append(
            EditEffect("group", CHANGED, "the lag is shown under the new group; nothing is read back from it")
        )
    result += _find_transformation_effects(old, new, changed, steps)
    result += _find_sink_effects(old, new, changed)
    return result


def _restart_effects(old: Config, new: Config, changed: Sequence[str]) -> EditEffect:
    before, after = spark_settings(old.raw), spark_settings(new.raw)
    if before != after or old.raw.get("spark.application") != new.raw.get("spark.application"):
        return EditEffect("run", CHANGED, "the flow stops after its batch and starts in another Spark application")
    if all(name.startswith(_SILENT) for name in changed):
        return EditEffect("run", CHANGED, "the flow restarts after its batch; its results stay the same")
    return EditEffect("run", CHANGED, "the flow stops after its batch and starts again in the same Spark application")


def _find_input_effects(old: Config, new: Config, changed: Sequence[str]) -> list[EditEffect]:
    before, after = old[SOURCE_TYPE], new[SOURCE_TYPE]
    if before != after:
        reason = f"the position in the checkpoint is one of source.type={before}: give the flow another name"
        return [EditEffect("source", REFUSED, reason)]
    options = ", ".join(name for name in changed if name.startswith((f"source.{after}.", TABLES)))
    if not options:
        return []
    if after == HISTORY:
        reason = f"{options}: the work was divided by these options when the flow began: give the flow another name"
        return [EditEffect("source", REFUSED, reason)]
    return [
        EditEffect("source", CHANGED, f"{options}: counts for files that were not read yet; those that were stay read")
    ]


def _find_topic_effects(old: Config, new: Config) -> list[EditEffect]:
    before, after = set(old["source.topics"] or ()), set(new["source.topics"] or ())
    result = []
    if before and after:
        if added := sorted(after - before):
            result.append(
                EditEffect(
                    "source",
                    CHANGED,
                    f"{', '.join(added)}: read from the first record, whatever source.starting.offsets says",
                )
            )
        if removed := sorted(before - after):
            names = ", ".join(removed)
            result.append(
                EditEffect("position", DROPPED, f"{names}: not read any more, and the positions are forgotten")
                if not new["source.fail.on.data.loss"]
                else EditEffect(
                    "source",
                    REFUSED,
                    f"{names}: the checkpoint has positions in it, and Spark takes a topic that is not read any more for lost "
                    "data: set source.fail.on.data.loss=false for one start",
                )
            )
    elif old["source.topics.pattern"] != new["source.topics.pattern"]:
        result.append(
            EditEffect(
                "source",
                CHANGED,
                "other topics match: new ones are read from the first record; positions in those that do not match any more "
                "count as lost data (source.fail.on.data.loss)",
            )
        )
    return result


def _find_decoding_effects(changed: Sequence[str]) -> list[EditEffect]:
    options = [name for name in changed if name.startswith(_DECODING)]
    if not options:
        return [
            EditEffect("schemas", KEPT, "the tables seen so far, with their columns and types, stay in the checkpoint")
        ]
    return [
        EditEffect(
            "schemas",
            KEPT,
            f"{', '.join(options)} changes, and the tables seen so far stay: a key or a type that does not fit to them stops "
            "the flow. Another name or checkpoint.location begins with none",
        )
    ]


def _find_transformation_effects(old: Config, new: Config, changed: Sequence[str], steps: Edit) -> list[EditEffect]:
    if old["transform.type"] != new["transform.type"]:
        materializes = new["transform.type"] == MATERIALIZE
        return [
            EditEffect(
                "state",
                REFUSED if materializes else DROPPED,
                "a materializer needs the whole history, and the checkpoint is behind its beginning: give the flow another "
                "name"
                if materializes
                else "the materializer's state topic is not used any more; rows are written as they come",
            )
        ]
    moved = old["checkpoint.location"] != new["checkpoint.location"]
    if not any(name == STEPS or name.startswith(STEP_PREFIX) for name in changed):
        kept = [EditEffect("steps", KEPT, "the steps stay")] if new.raw.get(STEPS) else []
        return kept + state_effects(steps, moved=moved)
    result = [
        EditEffect(
            "steps",
            CHANGED,
            "the new steps hold from the next batch on; rows that are in the sink already stay as the old steps made them",
        )
    ]
    return result + (
        state_effects(steps, moved=moved)
        or [EditEffect("state", KEPT, "no step keeps anything from batch to batch, so nothing is lost")]
    )


def state_effects(steps: Edit, *, moved: bool) -> list[EditEffect]:
    """The effects on what steps keep from batch to batch.

    Args:
        steps: before and after.
        moved: whether the flow continues with another checkpoint.
    """
    after = {step.name: step for step in steps.new if step.stateful}
    result = []
    for step in steps.old:
        if not step.stateful:
            continue
        keeps = f"step {step.name}: {step.state()}"
        follower = after.pop(step.name, None)
        if moved:
            result.append(
                EditEffect(
                    "state", DROPPED, f"{keeps}: stays in the old checkpoint; the step begins with that of the new one"
                )
            )
        elif follower is None:
            removal = "is removed after the first batch that is done without the step"
            result.append(
                EditEffect(
                    "state", DROPPED, f"{keeps}: {removal}; a step of this name that comes later begins with none"
                )
            )
        elif differing := describe_differences(step.definition(), follower.definition()):
            removal = (
                f"was made with {', '.join(differing)}. Set the options back; or give the step another name, under which it "
                "begins with no state; or give the flow another name, for a result of all rows"
            )
            result.append(EditEffect("state", REFUSED, f"{keeps}: {removal}"))
        else:
            result.append(EditEffect("state", KEPT, f"{keeps}: the step continues with it"))
    return result + [
        EditEffect(
            "state",
            CHANGED,
            f"step {name} is new and begins with no state: it knows no row from before the position. For a result of all rows "
            "give the flow another name, which reads from source.starting.offsets",
        )
        for name in after
        if not moved
    ]


def _find_sink_effects(old: Config, new: Config, changed: Sequence[str]) -> list[EditEffect]:
    if old["sink.type"] != new["sink.type"]:
        return [
            EditEffect(
                "sink",
                CHANGED,
                f"{old['sink.type']} keeps what it has; {new['sink.type']} gets the changes from the position on, not those "
                "before. For all rows give the flow another name, which reads from source.starting.offsets",
            )
        ]
    options = [name for name in changed if name.startswith("sink.")]
    if not options:
        return [EditEffect("sink", KEPT, "the target and all that is in it stay")]
    return [
        EditEffect(
            "sink",
            CHANGED,
            f"{', '.join(options)}: what is written stays; if they name another target, it gets the changes from the position "
            "on, not those before",
        )
    ]


def table_changes(old: Sequence[TableSchema], new: Sequence[TableSchema]) -> list[dict[str, Any]]:
    """How the tables that the sink gets change: a mapping for each table that does."""
    before, after = ({table.namespace: table for table in tables} for tables in (old, new))
    result: list[dict[str, Any]] = []
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            result.append({"table": name, "change": "no longer written"})
        elif name not in before:
            result.append({"table": name, "change": "new"})
        elif difference := _compare_tables(before[name], after[name]):
            result.append({"table": name, "change": "changed", **difference})
    return result


def _compare_tables(old: TableSchema, new: TableSchema) -> dict[str, Any]:
    before, after = ({column.name: column for column in table.columns} for table in (old, new))
    difference: dict[str, Any] = {
        "columns_added": [name for name in after if name not in before],
        "columns_removed": [name for name in before if name not in after],
        "types_changed": [name for name in after if name in before and after[name].type != before[name].type],
    }
    keys = [[column.name for column in table.key] for table in (old, new)]
    if keys[0] != keys[1]:
        difference["key_changed"] = {"from": keys[0], "to": keys[1]}
    return {name: value for name, value in difference.items() if value}
