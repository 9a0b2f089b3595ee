"""Delta tables through delta-rs: the interface of ``lake.model`` for this format."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import deltalake
import pyarrow as pa
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.types import StructType

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.lake.files import Files, open_file, raise_explained, read_rows
from spark_jobs.sinks.lake.model import (
    BUCKET,
    BUCKETS_PROPERTY,
    KEY_PROPERTY,
    Commit,
    Conflict,
    DataFile,
    LakePosition,
    LakeTableDefinition,
)
from spark_jobs.sinks.lake.task import by_bucket

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Types whose smallest and largest values go into the log, for readers that skip files.
_COMPARED: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)
_LONGEST: Final = 64
_HOUR_MS: Final = 3_600_000
#: How large files become that are written because a type became wider.
_REWRITTEN_BYTES: Final = 128 << 20
_REFUSED: Final = (
    "accessdenied",
    "permission denied",
    "unauthorized",
    "forbidden",
    "invalidaccesskey",
    "signaturedoesnotmatch",
)


@dataclass(slots=True)
class DeltaFiles:
    """Reads and writes the files of a table in tasks; see ``lake.model.FileTarget``."""

    uri: str
    options: Mapping[str, str]
    schema: pa.Schema
    by_id: bool = False
    _filesystem: Any = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return DeltaFiles, (self.uri, self.options, self.schema, self.by_id)

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """The table's folder."""
        if self._filesystem is None:
            self._filesystem = pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))
        return self._filesystem

    def read(self, path: str) -> Any:
        """See ``FileTarget``."""
        return self.filesystem.open_input_file(path)

    def create(self, bucket: int) -> tuple[str, Any]:
        """See ``FileTarget``."""
        folder = f"{BUCKET}={bucket}/" if bucket or self.bucketed else ""
        path = f"{folder}part-{uuid.uuid4().hex}.parquet"
        return path, self.filesystem.open_output_stream(path)

    @property
    def bucketed(self) -> bool:
        """Whether rows are in folders by bucket."""
        return (self.schema.metadata or {}).get(b"bucketed") == b"1"

    def describe(self, path: str, bucket: int, size: int, metadata: Any) -> bytes:
        """See ``FileTarget``."""
        partition = {BUCKET: str(bucket)} if self.bucketed else {}
        return json.dumps(
            {"path": path, "size": size, "partition": partition, "stats": read_statistics(self.schema, metadata)}
        ).encode()


def read_statistics(schema: pa.Schema, metadata: Any) -> dict[str, Any]:
    """The statistics of a file in the log: its number of rows, and bounds of columns of a few types. Pure.

    Source: Delta's protocol, "Per-file Statistics".
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    compared = {column.name for column in schema if any(fits(column.type) for fits in _COMPARED)}
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path
        if name not in compared:
            continue
        groups = [metadata.row_group(index).column(number).statistics for index in range(metadata.num_row_groups)]
        if not groups or any(group is None or not group.has_min_max for group in groups):
            continue
        bounds = min(group.min for group in groups), max(group.max for group in groups)
        if any(isinstance(bound, str) and len(bound) > _LONGEST for bound in bounds):
            continue
        low[name], high[name] = (bound.isoformat() if hasattr(bound, "isoformat") else bound for bound in bounds)
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high}


@dataclass(slots=True)
class DeltaLakeTable:
    """One table; see ``lake.model.LakeTable``."""

    table: DeltaTable
    uri: str
    options: Mapping[str, str]
    _files: dict[str, DataFile] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """See ``LakeTable``."""
        return self.uri

    @property
    def definition(self) -> LakeTableDefinition:
        """See ``LakeTable``."""
        properties = self.table.metadata().configuration
        columns = StructType.fromJson(json.loads(self.table.schema().to_json()))
        buckets = int(properties.get(BUCKETS_PROPERTY) or 0)
        return LakeTableDefinition(columns, tuple(json.loads(properties.get(KEY_PROPERTY) or "[]")), buckets)

    def refresh(self) -> None:
        """See ``LakeTable``."""
        self.table.update_incremental()

    def position(self, job: str, partitions: Sequence[tuple[str, int]]) -> LakePosition:
        """See ``LakeTable``; kept as application transactions of the table's log, one for each partition of a topic."""
        batch = self.table.transaction_version(_make_application_id(job))
        offsets: dict[str, dict[str, int]] = {}
        for topic, partition in partitions:
            after = self.table.transaction_version(_make_application_id(job, topic, str(partition)))
            if after is not None:
                offsets.setdefault(topic, {})[str(partition)] = after
        return LakePosition(-1 if batch is None else batch, offsets)

    def files(self) -> list[DataFile]:
        """See ``LakeTable``."""
        actions = pa.table(self.table.get_add_actions(flatten=True))
        names = actions.column_names
        bucket = f"partition.{BUCKET}"
        buckets = actions.column(bucket).to_pylist() if bucket in names else [0] * actions.num_rows
        rows = zip(actions.column("path").to_pylist(), buckets, actions.column("size_bytes").to_pylist(), strict=True)
        files = [DataFile(path, int(number or 0), size) for path, number, size in rows]
        self._files = {file.path: file for file in files}
        return files

    def target(self) -> DeltaFiles:
        """See ``LakeTable``."""
        return self._make_file_target(self.definition.columns)

    def _make_file_target(self, columns: StructType) -> DeltaFiles:
        fields = [field_ for field_ in _make_arrow_schema(columns) if field_.name != BUCKET]
        bucketed = b"1" if self.definition.buckets else b"0"
        return DeltaFiles(self.uri, self.options, pa.schema(fields, metadata={b"bucketed": bucketed}))

    def evolve(self, columns: StructType) -> None:
        """See ``LakeTable``. A wider type means that all files are written again: delta-rs has no type widening."""
        present = self.definition.columns
        wider = [column for column in present.fields if columns[column.name].dataType != column.dataType]
        with commits():
            if wider:
                self._rewrite_files(columns)
            else:
                new = [column for column in columns.fields if column.name not in present.names]
                self.table.alter.add_columns([deltalake.Field.from_json(column.json()) for column in new])
        self.refresh()

    def _rewrite_files(self, columns: StructType) -> None:
        target = self._make_file_target(columns)
        added = []
        for bucket, group in sorted(by_bucket(self.files()).items()):
            files = Files(target, bucket, _REWRITTEN_BYTES, "zstd")
            for file in group:
                with open_file(target, file.path) as parquet:
                    for rows in read_rows(target, parquet):
                        files.add(rows)
            files.close()
            added += files.added
        # What it removes is what the table has: it counts only if no other commit was made since the table was read.
        self.table.create_write_transaction(
            [*_add_actions(added, data_change=True)],
            "overwrite",
            deltalake.Schema.from_json(columns.json()),
            [BUCKET] if self.definition.buckets else None,
            commit_properties=CommitProperties(max_commit_retries=0),
        )

    def commit(self, change: Commit) -> None:
        """See ``LakeTable``. It counts only if no other commit was made since the table was read."""
        now = int(time.time() * 1000)
        data_change = change.position is not None
        actions: list[AddAction | RemoveAction] = [*_add_actions(change.added, data_change=data_change)]
        for path in change.removed:
            old = self._files[path]
            partition: dict[str, str | None] = {BUCKET: str(old.bucket)} if self.definition.buckets else {}
            actions.append(RemoveAction(path, data_change, now, old.size, partition))
        properties = CommitProperties(
            custom_metadata={"millrace.job": change.job},
            max_commit_retries=0,
            app_transactions=make_transactions(change.job, change.position),
        )
        with commits():
            self.table.create_write_transaction(
                actions,
                "append",
                self.table.schema(),
                [BUCKET] if self.definition.buckets else None,
                commit_properties=properties,
            )
        self.refresh()

    def expire(self, retention_ms: int) -> int:
        """See ``LakeTable``: VACUUM, of what no version names, too (files of crashed tasks)."""
        with commits():
            deleted = self.table.vacuum(
                retention_hours=-(-retention_ms // _HOUR_MS), dry_run=False, enforce_retention_duration=False, full=True
            )
        self.refresh()
        return len(deleted)


@dataclass(frozen=True, slots=True)
class DeltaLake:
    """Finds and makes tables below a folder; see ``lake.model.Lake``."""

    root: str
    options: Mapping[str, str]

    def find(self, name: str) -> DeltaLakeTable | None:
        """See ``Lake``."""
        uri = f"{self.root}/{name}"
        if not DeltaTable.is_deltatable(uri, dict(self.options)):
            return None
        return DeltaLakeTable(DeltaTable(uri, storage_options=dict(self.options)), uri, self.options)

    def create(self, name: str, definition: LakeTableDefinition) -> DeltaLakeTable:
        """See ``Lake``."""
        uri = f"{self.root}/{name}"
        properties = {}
        if definition.buckets:
            properties = {KEY_PROPERTY: json.dumps(definition.key), BUCKETS_PROPERTY: str(definition.buckets)}
        try:
            table = DeltaTable.create(
                uri,
                schema=deltalake.Schema.from_json(definition.columns.json()),
                mode="error",
                partition_by=[BUCKET] if definition.buckets else None,
                configuration=properties,
                storage_options=dict(self.options),
                raise_if_key_not_exists=False,
            )
        except DeltaError as error:
            if DeltaTable.is_deltatable(uri, dict(self.options)):
                raise Conflict(f"{uri} was made by another program") from error
            raise
        return DeltaLakeTable(table, uri, self.options)


def _make_arrow_schema(columns: StructType) -> pa.Schema:
    """Delta's columns in Arrow's types."""
    return pa.schema(deltalake.Schema.from_json(columns.json()).to_arrow())


def _add_actions(files: Sequence[bytes], *, data_change: bool) -> list[AddAction]:
    """The log's actions for files as ``DeltaFiles.describe`` gives them."""
    now = int(time.time() * 1000)
    descriptions = [json.loads(file) for file in files]
    return [
        AddAction(file["path"], file["size"], file["partition"], now, data_change, json.dumps(file["stats"]))
        for file in descriptions
    ]


def _make_application_id(*parts: str) -> str:
    return ":".join(("millrace", *parts))


def make_transactions(job: str, position: LakePosition | None) -> list[Transaction]:
    """A position as application transactions; none where it stays. Pure."""
    if position is None:
        return []
    return [
        Transaction(_make_application_id(job), position.batch),
        *(
            Transaction(_make_application_id(job, topic, partition), after)
            for topic, parts in sorted(position.offsets.items())
            for partition, after in sorted(parts.items())
        ),
    ]


class commits:  # noqa: N801 - used as a statement
    """Around a change of a table: another commit that came first is a ``Conflict``."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CommitFailedError):
            raise Conflict(str(error)) from error


def _explain_error(error: Exception, address: str) -> Exception:
    message = " ".join(str(error).split())
    if isinstance(error, DeltaProtocolError):
        return Fatal(f"{address}: the table needs what this writer does not have: {message}")
    if isinstance(error, (DeltaError, OSError)):
        if isinstance(error, (PermissionError, TableNotFoundError)) or any(
            word.replace(" ", "") in message.lower().replace(" ", "") for word in _REFUSED
        ):
            return Fatal(f"{address}: {message}. Check sink.delta.path and its rights (sink.delta.storage.*)")
        return Retriable(f"{address}: {message}")
    return error


#: Raises the errors of delta-rs as the frame wants them.
translate_errors: Final = partial(raise_explained, _explain_error)
