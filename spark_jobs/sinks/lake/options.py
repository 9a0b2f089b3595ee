"""Options that the lake sinks have in common, declared under the prefix of each (``sink.delta.``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from connectors.options import ConfigKey, ConfigType, Importance, at_least, between, invalid, non_empty, one_of
from spark_jobs.namespaces import check_template
from spark_jobs.sinks.jdbc.config import INSERT, REAL, SOFT, UPSERT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_jobs.sinks.lake.model import LakeTable

WHERE: Final = "Where tables are"
ROWS: Final = "What is written"
FILES: Final = "Files and upkeep"
_WEEK_MS: Final = 7 * 24 * 3_600_000
_B, _S, _I, _L, _LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.LIST
_LOW: Final = Importance.LOW


def check_name_template(name: str, value: Any) -> str | None:
    """Validator of a template of names."""
    complaint = check_template(value or "")
    return None if complaint is None else invalid(name, value, complaint)


def shared_keys(prefix: str) -> list[ConfigKey]:
    """The declarations.

    Args:
        prefix: of the sink, with the dot at its end.
    """
    return [*_row_keys(prefix), *_table_keys(prefix), *_file_keys(prefix)]


def _row_keys(prefix: str) -> list[ConfigKey]:
    return [
        ConfigKey(
            name=f"{prefix}mode",
            type=_S,
            default=UPSERT,
            importance=Importance.HIGH,
            group=ROWS,
            validator=one_of(UPSERT, INSERT),
            doc="upsert: one row per key, the one with the largest ums_id_. insert: every change is appended, each exactly "
            "once, images before an update (ums_op_ b) as well.",
        ),
        ConfigKey(
            name=f"{prefix}delete.mode",
            type=_S,
            default=SOFT,
            importance=Importance.HIGH,
            group=ROWS,
            validator=one_of(SOFT, REAL),
            doc="upsert: soft keeps a deleted row with ums_active_ = 0; real removes it and remembers the delete in a side "
            "table.",
        ),
        ConfigKey(
            name=f"{prefix}delete.retention.ms",
            type=_L,
            default=_WEEK_MS,
            unit="ms",
            group=ROWS,
            validator=at_least(60_000),
            doc="How long real deletes are remembered, at least. A change that arrives later than that after a newer delete "
            "of its key may bring the row back, so it must be longer than any replay or delay of a source.",
        ),
        ConfigKey(
            name=f"{prefix}key.columns",
            type=_LIST,
            default=[],
            group=ROWS,
            example="id",
            doc="Key columns of source tables that have no primary key; all tables without one must have them.",
        ),
    ]


def _table_keys(prefix: str) -> list[ConfigKey]:
    return [
        ConfigKey(
            name=f"{prefix}table.shared",
            type=_B,
            default=False,
            importance=_LOW,
            group=WHERE,
            doc="Whether several source tables may be written to one table (shards); their keys must differ.",
        ),
        ConfigKey(
            name=f"{prefix}side.table.suffix",
            type=_S,
            default="_ums",
            importance=_LOW,
            group=WHERE,
            validator=non_empty,
            doc="What is added to a table's name for the side table with the deletes of delete.mode=real.",
        ),
        ConfigKey(
            name=f"{prefix}auto.create",
            type=_B,
            default=True,
            group=WHERE,
            doc="Whether missing tables are made; else the job fails.",
        ),
        ConfigKey(
            name=f"{prefix}auto.evolve",
            type=_B,
            default=True,
            group=WHERE,
            doc="Whether missing columns are added and narrow ones widened; else the job fails.",
        ),
    ]


def _file_keys(prefix: str) -> list[ConfigKey]:
    return [
        ConfigKey(
            name=f"{prefix}buckets",
            type=_I,
            default=4,
            group=FILES,
            validator=between(1, 10_000),
            doc="upsert: into how many buckets the keys of a new table are divided (column ums_bucket_). A batch rewrites "
            "the files of a bucket that hold its keys, one task for each bucket at a time: as many as there are cores, "
            "and about one for each gigabyte of the table. It stays as it is for the life of a table.",
        ),
        ConfigKey(
            name=f"{prefix}file.bytes",
            type=_L,
            default=128 << 20,
            unit="bytes",
            group=FILES,
            validator=between(1 << 10, 4 << 30),
            doc="How large files become, about. Smaller files make upserts of few keys cheaper, larger ones make queries "
            "cheaper.",
        ),
        ConfigKey(
            name=f"{prefix}compact.files",
            type=_I,
            default=16,
            unit="files",
            group=FILES,
            validator=between(2, 10_000),
            doc="Files below half of file.bytes are merged when there are this many: with upsert in a bucket, by the next "
            "batch that writes to it; with insert in the table, between batches.",
        ),
        ConfigKey(
            name=f"{prefix}retention.ms",
            type=_L,
            default=_WEEK_MS,
            unit="ms",
            group=FILES,
            validator=at_least(0),
            doc="How long replaced files and old versions of a table stay, for readers and for queries of the past. No query "
            "and no batch may take longer.",
        ),
        ConfigKey(
            name=f"{prefix}expire.interval.ms",
            type=_L,
            default=3_600_000,
            unit="ms",
            importance=_LOW,
            group=FILES,
            validator=at_least(-1),
            doc="How often what is older than retention.ms is deleted, between batches; -1: never (another program does it).",
        ),
        ConfigKey(
            name=f"{prefix}commit.retries",
            type=_I,
            default=5,
            importance=_LOW,
            group=FILES,
            validator=between(0, 100),
            doc="How often a batch is merged or committed again because another program has changed the table meanwhile, "
            "before it is given back to the job.",
        ),
        ConfigKey(
            name=f"{prefix}compression",
            type=_S,
            default="zstd",
            importance=_LOW,
            group=FILES,
            validator=one_of("none", "snappy", "gzip", "zstd", "lz4"),
            doc="Compression of the Parquet files.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """The options, parsed; names as in ``shared_keys``. ``prefix`` is for messages."""

    prefix: str
    mode: str
    delete_mode: str
    delete_retention_ms: int
    key_columns: tuple[str, ...]
    shared: bool
    side_suffix: str
    auto_create: bool
    auto_evolve: bool
    buckets: int
    file_bytes: int
    compact_files: int
    retention_ms: int
    expire_interval_ms: int
    commit_retries: int
    compression: str

    @property
    def upsert(self) -> bool:
        """Whether there is one row per key."""
        return self.mode == UPSERT

    @property
    def rows_written(self) -> str:
        """The rows that a table has, for ``Sink.plan``."""
        deletes = f", deletes {self.delete_mode}, {self.buckets} buckets" if self.upsert else ""
        return f"mode {self.mode}{deletes}"

    @property
    def remembers_deletes(self) -> bool:
        """Whether there are side tables."""
        return self.upsert and self.delete_mode == REAL


def find_misfit(settings: LakeSettings, table: LakeTable) -> list[str]:
    """The option that a table contradicts which was made with other ones, as ``<option>: <text>``. Pure."""
    present, prefix = table.definition, settings.prefix
    if bool(present.buckets) != settings.upsert:
        writer_kind = "upserts, with a row per key" if present.buckets else "mode=insert, or by another program"
        return [f"{prefix}table: the table {table.address} was made for {writer_kind}; name another table"]
    if settings.upsert and settings.key_columns and sorted(present.key) != sorted(settings.key_columns):
        return [f"{prefix}key.columns: the key of the table {table.address} is ({', '.join(present.key)})"]
    return []


def lake_settings(config: Mapping[str, Any], prefix: str) -> LakeSettings:
    """The settings that the parsed options make. Pure."""

    def get(name: str) -> Any:
        return config[f"{prefix}{name}"]

    return LakeSettings(
        prefix=prefix,
        mode=get("mode"),
        delete_mode=get("delete.mode"),
        delete_retention_ms=get("delete.retention.ms"),
        key_columns=tuple(get("key.columns")),
        shared=get("table.shared"),
        side_suffix=get("side.table.suffix"),
        auto_create=get("auto.create"),
        auto_evolve=get("auto.evolve"),
        buckets=get("buckets"),
        file_bytes=get("file.bytes"),
        compact_files=get("compact.files"),
        retention_ms=get("retention.ms"),
        expire_interval_ms=get("expire.interval.ms"),
        commit_retries=get("commit.retries"),
        compression=get("compression"),
    )
