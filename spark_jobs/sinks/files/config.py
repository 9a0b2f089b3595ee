"""Options of the files sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid
from connectors.options import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    Importance,
    at_least,
    between,
    invalid,
    non_empty,
    one_of,
)
from connectors.source_options.start_times import is_time_of_day, time_zone
from spark_jobs.history import layout
from spark_jobs.history.rolling import Rolling
from spark_jobs.history.writing import Writing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config

PATH: Final = "sink.files.path"
FORMAT: Final = "sink.files.format"
COMPRESSION: Final = "sink.files.compression"
PARTITION_BY: Final = "sink.files.partition.by"
PARTITION_TIME: Final = "sink.files.partition.time"
LISTING: Final = "sink.files.listing"
ROWS_PER_TASK: Final = "sink.files.rows.per.task"
SOURCE_ID: Final = "sink.files.source.id"
REPLAY_CHECK: Final = "sink.files.replay.check"
ROLL_SIZE: Final = "sink.files.rolling.size.bytes"
ROLL_AGE: Final = "sink.files.rolling.age.ms"
ROLL_INACTIVITY: Final = "sink.files.rolling.inactivity.ms"
ROLL_FILES: Final = "sink.files.rolling.files"
ROLL_ON_CLOSE: Final = "sink.files.rolling.on.close"
COMPACT_FILES: Final = "sink.files.compact.files"
COMPACT_AT: Final = "sink.files.compact.at"
COMPACT_ZONE: Final = "sink.files.compact.time.zone"
RETENTION: Final = "sink.files.retention.ms"
CHECKPOINT_INTERVAL: Final = "sink.files.log.checkpoint.interval"
HIVE_DATABASE: Final = "sink.files.hive.database"
MANIFEST_INTERVAL: Final = "sink.files.manifest.interval.ms"

#: Compressions by format, as Spark spells them.
COMPRESSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "parquet": ("none", "snappy", "gzip", "lz4", "zstd"),
    "delta": ("none", "snappy", "gzip", "lz4", "zstd"),
    "orc": ("none", "snappy", "zlib", "lz4", "zstd", "brotli"),
    "avro": ("uncompressed", "snappy", "deflate", "bzip2", "xz", "zstandard"),
    "json": ("none", "gzip", "bzip2", "deflate"),
    "csv": ("none", "gzip", "bzip2", "deflate"),
}


def _partition_by(name: str, value: Any) -> str | None:
    try:
        layout.parse_layout(value)
    except ConfigInvalid as error:
        return invalid(name, value, str(error))
    return None


def _time_of_day(name: str, value: Any) -> str | None:
    return None if not value or is_time_of_day(value) else invalid(name, value, "must be a time of day such as 02:30")


def _check_zone(name: str, value: Any) -> str | None:
    if value and time_zone(value) is not None:
        return None
    return invalid(name, value, "must be a time zone that this machine knows, such as Europe/Berlin")


_GROUP: Final = "Files"
_ROLLING: Final = "Files: rolling and compaction"

CONFIG: Final = ConfigDef(
    [
        ConfigKey(
            name=PATH,
            type=ConfigType.STRING,
            validator=non_empty,
            importance=Importance.HIGH,
            group=_GROUP,
            doc="Where the tables go: a directory of any Hadoop file system. Each table has its directory below it.",
            example="hdfs://namenode/history",
        ),
        ConfigKey(
            name=FORMAT,
            type=ConfigType.STRING,
            default="parquet",
            importance=Importance.HIGH,
            group=_GROUP,
            validator=one_of("parquet", "orc", "json", "csv", "avro", "delta"),
            doc="Format of the files; delta makes Delta Lake tables, with Delta's own log, compaction and retention. "
            "Files of several formats may lie in one table (but for delta): a change takes effect for new files.",
        ),
        ConfigKey(
            name=COMPRESSION,
            type=ConfigType.STRING,
            default=None,
            group=_GROUP,
            importance=Importance.LOW,
            doc="Compression of the files, by format: "
            + "; ".join(f"{kind}: {', '.join(names)}" for kind, names in COMPRESSIONS.items())
            + ". Default: Spark's.",
            example="zstd",
        ),
        ConfigKey(
            name=PARTITION_BY,
            type=ConfigType.STRING,
            default="namespace/date",
            validator=_partition_by,
            group=_GROUP,
            importance=Importance.HIGH,
            example="{database}/{table}/date/hour",
            doc="Directories, outermost first. The first levels make the table: namespace (without UMS's table version), "
            "exact (with it), or text with {datastore} {instance} {database} {table} {version} {database_partition} "
            "{table_partition}. Then partition directories of the row's time (UTC): year, month, date, hour, "
            "name={a time pattern like yyyyMMdd}, or of a column: name={column:country}.",
        ),
        ConfigKey(
            name=PARTITION_TIME,
            type=ConfigType.STRING,
            default="ums_ts_",
            validator=one_of("ums_ts_", "processing"),
            group=_GROUP,
            importance=Importance.LOW,
            doc="The time in partition directories: ums_ts_ (of the change in the source) or processing (of writing).",
        ),
        ConfigKey(
            name=LISTING,
            type=ConfigType.STRING,
            default="finished",
            validator=one_of("finished", "immediate"),
            group=_GROUP,
            doc="What readers see who list directories instead of reading the log: finished = rows from the moment their "
            "bucket is rolled, each exactly once; immediate = rows at once, in small files, and for a moment twice when "
            "these are replaced by a merged one. Readers of the log or of the manifest see all rows in both.",
        ),
        ConfigKey(
            name=HIVE_DATABASE,
            type=ConfigType.STRING,
            default="",
            group=_GROUP,
            example="lake",
            doc="Database of a Hive metastore in which tables of format parquet or orc are registered, with partitions and "
            "new columns; empty: none. It must exist. The job names the metastore: spark.sql.catalogImplementation=hive and "
            "spark.hadoop.hive.metastore.uris=thrift://host:9083.",
        ),
        ConfigKey(
            name=ROWS_PER_TASK,
            type=ConfigType.INT,
            default=50_000,
            validator=at_least(1),
            group=_GROUP,
            unit="rows",
            importance=Importance.LOW,
            doc="A batch is written by one task per that many records, and makes one file each.",
        ),
        ConfigKey(
            name=SOURCE_ID,
            type=ConfigType.STRING,
            default="",
            group=_GROUP,
            importance=Importance.LOW,
            doc="Name of the Kafka whose offsets the tables' logs keep. Give it another value when the topics were "
            "recreated, or when jobs that read several clusters write to one path.",
        ),
        ConfigKey(
            name=REPLAY_CHECK,
            type=ConfigType.BOOLEAN,
            default=True,
            group=_GROUP,
            importance=Importance.LOW,
            doc="Before rows are left out because their offsets are in the table already, look a sample of them up there; "
            "the job fails when they are not: the topic was created again.",
        ),
        ConfigKey(
            name=ROLL_SIZE,
            type=ConfigType.LONG,
            default=128 * 1024 * 1024,
            validator=at_least(1),
            group=_ROLLING,
            unit="bytes",
            doc="A bucket's small files are merged when they reach this together; size that merging aims at.",
        ),
        ConfigKey(
            name=ROLL_AGE,
            type=ConfigType.LONG,
            default=15 * 60_000,
            validator=at_least(0),
            group=_ROLLING,
            unit="ms",
            doc="A bucket's small files are merged when the oldest is this old.",
        ),
        ConfigKey(
            name=ROLL_INACTIVITY,
            type=ConfigType.LONG,
            default=2 * 60_000,
            validator=at_least(0),
            group=_ROLLING,
            unit="ms",
            doc="A bucket's small files are merged when the newest is this old.",
        ),
        ConfigKey(
            name=ROLL_FILES,
            type=ConfigType.INT,
            default=200,
            validator=at_least(2),
            group=_ROLLING,
            unit="files",
            importance=Importance.LOW,
            doc="A bucket's small files are merged when there are this many.",
        ),
        ConfigKey(
            name=ROLL_ON_CLOSE,
            type=ConfigType.STRING,
            default="auto",
            validator=one_of("auto", "always", "never"),
            group=_ROLLING,
            importance=Importance.LOW,
            doc="Whether small files are merged when the job stops: auto = with trigger.mode=available-now only, which has "
            "no later batch that would.",
        ),
        ConfigKey(
            name=COMPACT_FILES,
            type=ConfigType.INT,
            default=16,
            validator=at_least(0),
            group=_ROLLING,
            unit="files",
            importance=Importance.LOW,
            doc="Finished files of a bucket below half the rolling size are merged when there are this many; 0 = only by "
            "`millrace job compact`.",
        ),
        ConfigKey(
            name=COMPACT_AT,
            type=ConfigType.STRING,
            default="",
            validator=_time_of_day,
            group=_ROLLING,
            example="02:30",
            doc="Time of day (02:30 or 02:30:00) at which finished files are merged, instead of when a bucket has "
            "sink.files.compact.files of them: all files below half the rolling size that were written before it, where a "
            "bucket has two or more. A job that does not run then does it after its next start. Not with format delta.",
        ),
        ConfigKey(
            name=COMPACT_ZONE,
            type=ConfigType.STRING,
            default="UTC",
            validator=_check_zone,
            group=_ROLLING,
            importance=Importance.LOW,
            example="Europe/Berlin",
            doc="Time zone of sink.files.compact.at.",
        ),
        ConfigKey(
            name=RETENTION,
            type=ConfigType.LONG,
            default=60 * 60_000,
            validator=between(0, 10 * 365 * 86_400_000),
            group=_ROLLING,
            unit="ms",
            doc="How long replaced files and old versions of the log stay for readers that began before. No query over the "
            "history may take longer.",
        ),
        ConfigKey(
            name=CHECKPOINT_INTERVAL,
            type=ConfigType.INT,
            default=50,
            validator=at_least(2),
            group=_ROLLING,
            unit="commits",
            importance=Importance.LOW,
            doc="Commits between two checkpoints of a table's log.",
        ),
        ConfigKey(
            name=MANIFEST_INTERVAL,
            type=ConfigType.LONG,
            default=10_000,
            validator=at_least(-1),
            group=_GROUP,
            unit="ms",
            importance=Importance.LOW,
            doc="How often _manifest/files.txt, the list of all current files, is written where something changed; 0 = with "
            "each commit, -1 = never.",
        ),
    ]
)


def find_problems(config: Mapping[str, Any]) -> list[str]:
    """Return the problems of options in combination."""
    if config[COMPACT_AT] and config[FORMAT] == "delta":
        return [f"{COMPACT_AT}: not with {FORMAT}=delta; run `millrace job compact` at that time"]
    allowed = COMPRESSIONS[config[FORMAT]]
    if config[COMPRESSION] is not None and config[COMPRESSION] not in allowed:
        return [
            f"{COMPRESSION}: "
            + invalid(COMPRESSION, config[COMPRESSION], f"{config[FORMAT]} files take: {', '.join(allowed)}")
        ]
    return []


def hive_problems(config: Config) -> list[str]:
    """Complaints about a registration in Hive."""
    if not config[HIVE_DATABASE]:
        return []
    if config[FORMAT] not in ("parquet", "orc"):
        return [f"{HIVE_DATABASE}: not with {FORMAT}={config[FORMAT]}; use parquet or orc"]
    if config.raw.get("spark.sql.catalogImplementation") != "hive":
        problem = (
            f"{HIVE_DATABASE}: the job's Spark has no metastore: set spark.sql.catalogImplementation=hive, and where it is by "
            "spark.hadoop.hive.metastore.uris"
        )
        return [problem]
    return []


def rolling_of(config: Mapping[str, Any]) -> Rolling:
    """The rolling policy of a job."""
    return Rolling(
        size=config[ROLL_SIZE],
        age=config[ROLL_AGE],
        inactivity=config[ROLL_INACTIVITY],
        files=config[ROLL_FILES],
        compact_files=config[COMPACT_FILES],
        compact_at=config[COMPACT_AT],
        compact_zone=config[COMPACT_ZONE],
        retention=config[RETENTION],
    )


def writing_of(config: Mapping[str, Any]) -> Writing:
    """How a job writes."""
    return Writing(
        format=config[FORMAT],
        layout=layout.parse_layout(config[PARTITION_BY]),
        compression=config[COMPRESSION],
        by_processing_time=config[PARTITION_TIME] == "processing",
        immediate=config[LISTING] == "immediate",
        rows_per_task=config[ROWS_PER_TASK],
        check=config[REPLAY_CHECK],
    )
