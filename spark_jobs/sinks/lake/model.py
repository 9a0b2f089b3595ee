"""Data that the parts of a lake sink hand to each other, and the interface of a table format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

#: The column of upsert tables that says in which bucket of keys a row is. Tables are partitioned by it.
BUCKET: Final = "ums_bucket_"
#: System columns of a table, by mode.
UPSERT_SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_", "ums_active_")
REAL_SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_")
INSERT_SYSTEM: Final = ("ums_id_", "ums_ts_", "ums_op_", "ums_uid_")
#: Of the side table that remembers deletes.
WRITTEN: Final = "written_at_"
SIDE_SYSTEM: Final = ("ums_id_", WRITTEN)
#: Names of all columns that the sink adds.
RESERVED: Final = frozenset((*UPSERT_SYSTEM, *INSERT_SYSTEM, BUCKET, WRITTEN))
#: Properties of a table that say how its rows are ordered into files.
KEY_PROPERTY: Final = "millrace.key"
BUCKETS_PROPERTY: Final = "millrace.buckets"


class Conflict(Exception):
    """Somebody else has changed the table since it was read: look at it and try the commit again."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a table.

    Attributes:
        path: as the table names it.
        bucket: of its rows; 0 in tables without buckets.
        size: in bytes.
    """

    path: str
    bucket: int
    size: int


@dataclass(frozen=True, slots=True)
class LakePosition:
    """How far a job's commits have come in a table: the last batch's number, and topic -> partition -> the next offset."""

    batch: int = -1
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LakeTableDefinition:
    """The columns of a table, and how its rows are divided into files.

    Attributes:
        columns: all of them, with the system's and the bucket.
        key: names of the key's columns; empty in tables of mode insert.
        buckets: how many there are; 0 in tables of mode insert.
    """

    columns: StructType
    key: tuple[str, ...] = ()
    buckets: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of a table.

    Attributes:
        added: new files, as ``FileTarget.describe`` gives them.
        removed: paths of files that no longer count.
        position: the job's position after it; None: it stays (compaction, the side table).
        job: the job's name.
    """

    added: Sequence[bytes]
    removed: Sequence[str]
    position: LakePosition | None
    job: str


class FileTarget(Protocol):
    """Reads and writes the files of one table, in tasks. Picklable."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of a file, in order."""

    @property
    def by_id(self) -> bool:
        """Whether columns of files are known by their field ids, not by their names."""

    def read(self, path: str) -> Any:
        """A file that pyarrow can read. Blocks."""

    def create(self, bucket: int) -> tuple[str, Any]:
        """A new file: its path, as the table names it, and the stream to write it to. Blocks."""

    def describe(self, path: str, bucket: int, size: int, metadata: Any) -> bytes:
        """A written file as the commit has to know it; ``metadata`` is Parquet's."""


class LakeTable(Protocol):
    """A table, on the driver. Methods block."""

    @property
    def address(self) -> str:
        """Where it is, for messages."""

    @property
    def definition(self) -> LakeTableDefinition:
        """As it was when it was read last. ``buckets`` is 0 where the sink did not make the table for upserts."""

    def refresh(self) -> None:
        """Read the table's newest version."""

    def position(self, job: str, partitions: Sequence[tuple[str, int]]) -> LakePosition:
        """The job's position, of these topics and partitions."""

    def files(self) -> list[DataFile]:
        """All files that count."""

    def target(self) -> FileTarget:
        """For tasks."""

    def evolve(self, columns: StructType) -> None:
        """Add columns and widen types.

        Raises:
            connectors.errors.Fatal: the format can't.
            Conflict: see there.
        """

    def commit(self, change: Commit) -> None:
        """Put a change into the table, if no other program has changed it since it was read; then reads it again.

        Raises:
            Conflict: somebody has.
        """

    def expire(self, retention_ms: int) -> int:
        """Forget versions that are older, and delete files that no version names; how many files were deleted."""


class Lake(Protocol):
    """Finds and makes tables. Methods block."""

    def find(self, name: str) -> LakeTable | None:
        """The table of that name; None where it does not exist."""

    def create(self, name: str, definition: LakeTableDefinition) -> LakeTable:
        """Make a table.

        Raises:
            Conflict: somebody else has made it meanwhile.
        """
