"""Iceberg tables through pyiceberg: the interface of ``lake.model`` for this format."""

from __future__ import annotations

import contextlib
import json
import pickle
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import TableProperties
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyspark.sql.types import StructField, StructType

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.iceberg.types import schema_of, to_iceberg, to_spark
from spark_jobs.sinks.lake.files import raise_explained
from spark_jobs.sinks.lake.model import (
    BUCKET,
    BUCKETS_PROPERTY,
    Commit,
    Conflict,
    DataFile,
    LakePosition,
    LakeTableDefinition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

#: A table's property with the position of a job, as JSON.
_POSITION: Final = "millrace.position."
_NO_RETRIES: Final = TableProperties.COMMIT_NUM_RETRIES


@dataclass(slots=True)
class IcebergFiles:
    """Reads and writes the files of a table in tasks; see ``lake.model.FileTarget``."""

    location: str
    properties: Mapping[str, str]
    iceberg: Schema
    spec_id: int
    schema: pa.Schema
    by_id: bool = True
    _io: Any = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return IcebergFiles, (self.location, self.properties, self.iceberg, self.spec_id, self.schema)

    @property
    def io(self) -> Any:
        """The file system."""
        if self._io is None:
            self._io = load_file_io(dict(self.properties), self.location)
        return self._io

    def read(self, path: str) -> Any:
        """See ``FileTarget``."""
        return self.io.new_input(path).open()

    def create(self, bucket: int) -> tuple[str, Any]:
        """See ``FileTarget``."""
        folder = f"{BUCKET}={bucket}/" if self._has_buckets() else ""
        path = f"{self.location.rstrip('/')}/data/{folder}{uuid.uuid4().hex}.parquet"
        return path, self.io.new_output(path).create()

    def _has_buckets(self) -> bool:
        return BUCKET in self.schema.names

    def describe(self, path: str, bucket: int, size: int, metadata: Any) -> bytes:
        """See ``FileTarget``: the arguments of ``manifest.DataFile``."""
        statistics = data_file_statistics_from_parquet_metadata(
            metadata, compute_statistics_plan(self.iceberg, {}), parquet_path_to_id_mapping(self.iceberg)
        )
        return pickle.dumps(
            {
                "content": DataFileContent.DATA,
                "file_path": path,
                "file_format": FileFormat.PARQUET,
                "partition": Record(bucket) if self._has_buckets() else Record(),
                "file_size_in_bytes": size,
                "sort_order_id": None,
                "spec_id": self.spec_id,
                "equality_ids": None,
                "key_metadata": None,
                **statistics.to_serialized_dict(),
            }
        )


@dataclass(slots=True)
class IcebergTable:
    """One table; see ``lake.model.LakeTable``."""

    table: Table
    _files: dict[str, IcebergFile] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """See ``LakeTable``."""
        return ".".join(self.table.name())

    @property
    def definition(self) -> LakeTableDefinition:
        """See ``LakeTable``."""
        schema = self.table.schema()
        try:
            columns = StructType([StructField(column.name, to_spark(column.field_type)) for column in schema.fields])
        except KeyError as error:
            raise Fatal(f"table {self.address} has a column of a type that Spark does not have: {error}") from error
        keys = tuple(column.name for column in schema.fields if column.field_id in schema.identifier_field_ids)
        return LakeTableDefinition(columns, keys, int(self.table.properties.get(BUCKETS_PROPERTY, 0)))

    def refresh(self) -> None:
        """See ``LakeTable``."""
        self.table.refresh()

    def position(self, job: str, partitions: Sequence[tuple[str, int]]) -> LakePosition:
        """See ``LakeTable``; kept as a property, which is changed in the commit of the rows and outlives their snapshot."""
        position_json = self.table.properties.get(f"{_POSITION}{job}")
        if position_json is None:
            return LakePosition()
        saved = json.loads(position_json)
        offsets: dict[str, dict[str, int]] = {}
        for topic, partition in partitions:
            after = saved["offsets"].get(topic, {}).get(str(partition))
            if after is not None:
                offsets.setdefault(topic, {})[str(partition)] = after
        return LakePosition(saved["batch"], offsets)

    def files(self) -> list[DataFile]:
        """See ``LakeTable``."""
        tasks = list(self.table.scan().plan_files())
        deleted = [task.file.file_path for task in tasks if task.delete_files]
        if deleted:
            raise Fatal(
                f"table {self.address} has files with deletes of rows next to them ({deleted[0]}), which another program "
                "wrote: run its compaction (rewrite_data_files), and let it write with copy-on-write"
            )
        self._files = {task.file.file_path: task.file for task in tasks}
        bucketed = bool(self.definition.buckets)
        return [
            DataFile(path, int(file.partition[0]) if bucketed else 0, file.file_size_in_bytes)
            for path, file in self._files.items()
        ]

    def target(self) -> IcebergFiles:
        """See ``LakeTable``."""
        schema = self.table.schema()
        properties = {key: str(value) for key, value in self.table.io.properties.items()}
        return IcebergFiles(
            self.table.location(),
            properties,
            schema,
            self.table.spec().spec_id,
            make_nullable(schema_to_pyarrow(schema)),
        )

    def evolve(self, columns: StructType) -> None:
        """See ``LakeTable``."""
        present = self.definition
        try:
            with self.table.update_schema() as update:
                for column in columns.fields:
                    if column.name not in present.columns.names:
                        update.add_column((column.name,), to_iceberg(column.dataType, iter(range(1, 1 << 20))))
                    else:
                        _widen_column(update, (column.name,), present.columns[column.name].dataType, column.dataType)
        except CommitFailedException as error:
            raise Conflict(str(error)) from error
        except (ValidationError, ValueError) as error:
            raise Fatal(f"table {self.address} can't be changed: {error}") from error
        self.refresh()

    def commit(self, change: Commit) -> None:
        """See ``LakeTable``. It counts only if the table's snapshot is the one that was read."""
        # pyiceberg would put our files on top of a snapshot that we have not seen: what we merged may have changed there.
        self.table.metadata.properties[_NO_RETRIES] = "0"
        summary = {"millrace.job": change.job}
        if change.position is not None:
            summary["millrace.batch"] = str(change.position.batch)
        try:
            with self.table.transaction() as transaction:
                update = transaction.update_snapshot(snapshot_properties=summary)
                with update.overwrite() if change.removed else update.fast_append() as snapshot:
                    for path in change.removed:
                        snapshot.delete_data_file(self._files[path])
                    for file in change.added:
                        arguments = pickle.loads(file)  # noqa: S301 - from our own tasks
                        snapshot.append_data_file(IcebergFile.from_args(**arguments))
                if change.position is not None:
                    transaction.set_properties(
                        {f"{_POSITION}{change.job}": self._merge_position(change.job, change.position)}
                    )
        except CommitFailedException as error:
            raise Conflict(str(error)) from error
        self.refresh()

    def _merge_position(self, job: str, position: LakePosition) -> str:
        """The job's position with what the table knows of other partitions."""
        position_json = self.table.properties.get(f"{_POSITION}{job}")
        offsets = json.loads(position_json)["offsets"] if position_json else {}
        for topic, parts in position.offsets.items():
            offsets.setdefault(topic, {}).update(parts)
        return json.dumps({"batch": position.batch, "offsets": offsets}, sort_keys=True)

    def expire(self, retention_ms: int) -> int:
        """See ``LakeTable``: snapshots first, then the files that only they named."""
        before = datetime.now(UTC) - timedelta(milliseconds=retention_ms)
        limit = int(before.timestamp() * 1000)
        metadata = self.table.metadata
        heads = {reference.snapshot_id for reference in metadata.refs.values()}
        old = [snap for snap in metadata.snapshots if snap.timestamp_ms < limit and snap.snapshot_id not in heads]
        if not old:
            return 0
        gone = {snapshot.snapshot_id for snapshot in old}
        kept = [snap for snap in metadata.snapshots if snap.snapshot_id not in gone]
        named: set[str] = set()
        unnamed: set[str] = set()
        for snapshots, paths in ((kept, named), (old, unnamed)):
            for snapshot in snapshots:
                paths.add(snapshot.manifest_list)
                for manifest in snapshot.manifests(self.table.io):
                    paths.add(manifest.manifest_path)
                    entries = manifest.fetch_manifest_entry(self.table.io, discard_deleted=False)
                    living = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
                    paths.update(entry.data_file.file_path for entry in living)
        try:
            self.table.maintenance.expire_snapshots().by_ids(sorted(gone)).commit()
        except CommitFailedException as error:
            raise Conflict(str(error)) from error
        for path in unnamed - named:
            self.table.io.delete(path)
        self.refresh()
        return len(unnamed - named)


@dataclass(frozen=True, slots=True)
class IcebergLake:
    """Finds and makes tables of a catalog; see ``lake.model.Lake``. Names have their levels divided by a null character."""

    catalog: Catalog

    def find(self, name: str) -> IcebergTable | None:
        """See ``Lake``."""
        try:
            table = IcebergTable(self.catalog.load_table(tuple(name.split(LEVELS))))
        except NoSuchTableError:
            return None
        foreign = [part.name for part in table.table.spec().fields if part.name != BUCKET]
        if foreign:
            raise Fatal(
                f"table {table.address} is partitioned by {', '.join(foreign)}, and the sink writes tables without partitions, "
                "or by the bucket of their key: write to another table (sink.iceberg.table)"
            )
        return table

    def create(self, name: str, definition: LakeTableDefinition) -> IcebergTable:
        """See ``Lake``."""
        identifier = tuple(name.split(LEVELS))
        schema = schema_of(definition)
        spec = PartitionSpec()
        properties = {
            TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
        }
        if definition.buckets:
            bucket = schema.find_field(BUCKET).field_id
            spec = PartitionSpec(PartitionField(bucket, 1000, IdentityTransform(), BUCKET))
            properties[BUCKETS_PROPERTY] = str(definition.buckets)
        with contextlib.suppress(NamespaceAlreadyExistsError):
            self.catalog.create_namespace(identifier[:-1])
        try:
            return IcebergTable(
                self.catalog.create_table(identifier, schema, partition_spec=spec, properties=properties)
            )
        except TableAlreadyExistsError as error:
            raise Conflict(f"{'.'.join(identifier)} was made by another program") from error


#: Between the levels of a table's name; names have points in them.
LEVELS: Final = "\0"


def catalog_of(properties: Mapping[str, str]) -> Catalog:
    """The catalog, under its property ``name`` (which tells catalogs of type sql in one database apart). May block."""
    return load_catalog(**{"name": "millrace", **properties})


def make_nullable(schema: pa.Schema) -> pa.Schema:
    """A schema whose columns may all be null: rows are checked by the format, not by Arrow. Pure."""
    return pa.schema([column.with_nullable(True) for column in schema], metadata=schema.metadata)


def _widen_column(update: Any, path: tuple[str, ...], present: Any, asked: Any) -> None:
    """Change a column's type, and those of fields in it."""
    if present == asked:
        return
    if isinstance(present, StructType) and isinstance(asked, StructType):
        for column in asked.fields:
            inner = (*path, column.name)
            if column.name in present.names:
                _widen_column(update, inner, present[column.name].dataType, column.dataType)
            else:
                update.add_column(inner, to_iceberg(column.dataType, iter(range(1, 1 << 20))))
        return
    kind = to_iceberg(asked, iter(range(1, 1 << 20)))
    if kind != to_iceberg(present, iter(range(1, 1 << 20))):
        update.update_column(path, field_type=kind)


def _explain_error(error: Exception, address: str) -> Exception:
    message = " ".join(str(error).split())[:1000]
    if isinstance(error, (UnauthorizedError, ForbiddenError, PermissionError)):
        return Fatal(f"{address}: {message}. Check the login in sink.iceberg.catalog.*")
    module = type(error).__module__
    passing = (CommitStateUnknownException, OSError)
    if isinstance(error, passing) or module.startswith(
        ("pyiceberg.", "sqlalchemy.", "requests.", "thrift.", "botocore.")
    ):
        return Retriable(f"{address}: {message}")
    return error


#: Raises the errors of pyiceberg and of its catalog as the frame wants them.
translate_errors: Final = partial(raise_explained, _explain_error)
