"""Follows the schemas of a sink's tables from batch to batch: applies the policies, reports changes, keeps what the sink has.

What the sink has of each table is kept in the checkpoint, written after the batch: a batch that fails leaves nothing behind.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal
from spark_jobs.config.schema_options import NEW_TABLE, TRY_EVOLVE
from spark_jobs.namespaces import find_identity
from spark_jobs.rows.schema_policy import (
    SchemaChange,
    SinkTableState,
    first_state,
    new_table,
    put_aside,
    resolve_changes,
)
from spark_jobs.sources import tables as stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_jobs.config.schema_options import SchemaPolicies
    from spark_jobs.contract import SchemaRefused, TableChanges, TableSchema
    from spark_jobs.reports.progress import EventWriter
    from spark_jobs.spark.checkpoint import Folder

_log: Final = logging.getLogger(__name__)
#: In the checkpoint: the schemas as the sink has them.
FILE: Final = "_millrace_schemas"


class SchemaWatch:
    """The schemas of one sink. For the thread of batches.

    Args:
        policies: the sink's.
        folder: the checkpoint.
        events: get an event for each change.
        tolerant: whether records can go to a dead letter topic.
    """

    def __init__(self, policies: SchemaPolicies, folder: Folder, events: EventWriter, *, tolerant: bool) -> None:
        self._policies = policies
        self._folder = folder
        self._events = events
        self._tolerant = tolerant
        self._states, self._began = _load_states(folder)
        #: Of the batch that is being written.
        self._next: dict[str, SinkTableState] = {}
        self._changes: list[tuple[str, SchemaChange]] = []
        #: Tables whose target has refused to follow.
        self._refused: dict[str, str] = {}
        #: Tables whose records go to the dead letter topic, and that were reported in this run.
        self._reported_new: set[str] = set()
        #: Tables of this batch whose records go to the dead letter topic.
        self._aside: dict[str, str] = {}
        self.reported = 0

    def apply(self, tables: Sequence[TableChanges]) -> list[TableChanges]:
        """The tables of a batch as the sink gets them; may be called again for the same batch.

        Raises:
            Fatal: a policy is ``fail``.
        """
        self._next, self._changes, self._aside = {}, [], {}
        return [self._apply_policies(changes) for changes in tables]

    def _apply_policies(self, changes: TableChanges) -> TableChanges:
        schema = changes.schema
        name = find_identity(schema.namespace)
        refused = name in self._refused
        state = self._next.get(name) or self._states.get(name)
        if state is None:
            if self._began:
                self._find_new_table(name, schema, refused=refused)
            self._next[name] = first_state(schema)
            return changes
        resolution = resolve_changes(state, schema, changes.lacking, self._policies, refused=refused)
        self._next[name] = resolution.state
        self._changes += [(schema.namespace, change) for change in resolution.changes]
        if resolution.asis:
            return changes
        from spark_jobs.rows.schema_frames import project_columns

        return replace(
            changes, schema=resolution.schema(schema), frame=project_columns(changes, resolution), packed=None
        )

    def _find_new_table(self, name: str, schema: TableSchema, *, refused: bool) -> None:
        change = new_table(schema.namespace, self._policies, refused=refused)
        if name not in self._reported_new:
            self._changes.append((schema.namespace, change))
        if put_aside(change):
            reason = self._refused.get(name) or f"the table {schema.namespace} is new, and the sink ignores new tables"
            self._aside[name] = reason

    def refusal(self, schema: TableSchema) -> str:
        """Why the records of a table go to the dead letter topic; empty where they don't."""
        return self._aside.get(find_identity(schema.namespace), "")

    def fall_back(self, error: SchemaRefused) -> bool:
        """Take note that the target can't follow a table; whether the batch can be written without the change."""
        name = find_identity(error.namespace)
        new = name not in self._states and self._began
        tries = TRY_EVOLVE in (
            [self._policies[NEW_TABLE]]
            if new
            else [change.policy for namespace, change in self._changes if find_identity(namespace) == name]
        )
        if name in self._refused or not tries or (new and not self._tolerant):
            return False
        _log.warning(
            "the target can't follow a change of the table %s, which is ignored now: %s", error.namespace, error
        )
        self._refused[name] = str(error)
        return True

    def written(self, batch: int) -> None:
        """The batch is in the target: report its changes, and keep what the sink has of the tables now."""
        kept = {name: state for name, state in self._next.items() if name not in self._aside}
        for namespace, change in self._changes:
            _log.warning(
                "table %s: %s %s: %s (%s)", namespace, change.kind, change.column, change.effect, change.policy
            )
            self._events.emit(
                "schema_change",
                batch=batch,
                table=namespace,
                change=change.kind,
                column=change.column,
                before=change.before,
                after=change.after,
                policy=change.policy,
                effect=change.effect,
            )
        self.reported += len(self._changes)
        if not self._began or any(self._states.get(name) != state for name, state in kept.items()):
            self._states |= kept
            self._folder.write(FILE, to_text(self._states))
            self._began = True
        self._reported_new |= self._aside.keys()
        # A table that can't follow is retried at the next start, not with each batch.
        self._next, self._changes, self._aside = {}, [], {}


def to_text(states: dict[str, SinkTableState]) -> str:
    """Return the text that is kept of the tables."""
    states_data = {
        name: {
            "reported": [asdict(change) for change in state.reported],
            "dropped": list(state.dropped),
            "string_columns": dict(state.string_columns),
        }
        for name, state in states.items()
    }
    return stored.to_json({name: state.accepted for name, state in states.items()}, {"states": states_data})


def _load_states(folder: Folder) -> tuple[dict[str, SinkTableState], bool]:
    """The tables as the sink has them, and whether any batch was written.

    Raises:
        Fatal: the file can't be read.
    """
    states_json = folder.read(FILE)
    if states_json is None:
        return {}, False
    try:
        schemas, extra = stored.from_json(states_json)
        states_data: dict[str, Any] = extra["states"]
        states = {
            name: SinkTableState(
                schema,
                tuple(SchemaChange(**fields) for fields in states_data[name]["reported"]),
                tuple(states_data[name]["dropped"]),
                dict(states_data[name]["string_columns"]),
            )
            for name, schema in schemas.items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise Fatal(
            f"{FILE} in the checkpoint can't be read ({error}). Restore it, or delete it: the tables of the next batch count "
            "as those that the sink has"
        ) from error
    return states, True
