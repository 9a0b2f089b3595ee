"""The state of a job's steps in a savepoint: tables as Parquet and values, as of the end of the savepoint's batch.

In the checkpoint every row of a state has the number of the batch that wrote it (``steps/state/tables.py``). A batch that is
not done, or whose commit is missing, may have left rows and values of a later number: they are not taken. A job that starts
from the savepoint gets the rows with their numbers, and continues with the batch after the savepoint's.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal
from spark_jobs.spark.checkpoint import open_folder, spark_path
from spark_jobs.steps.state.definition import describe_differences
from spark_jobs.steps.state.delta_log import read_facts
from spark_jobs.steps.state.tables import BATCH, FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from spark_jobs.savepoints.manifest import SavepointManifest
    from spark_jobs.spark.checkpoint import Folder
    from spark_jobs.steps.contract import Step

#: The folder of a step's values in its state.
_VALUES: Final = "values"
#: Lets a hash be computed of columns that hold maps.
_HASH_MAPS: Final = "spark.sql.legacy.allowHashOnMapType"


class SavedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a step's state.

    Attributes:
        folder: in the savepoint, holds ``files``.
        files: names of the Parquet files.
        rows: how many there are.
        digest: the exclusive or of their hashes.
        partitioned_by: columns by which the table in the checkpoint is divided into folders.
        properties: of that table.
    """

    folder: str
    files: list[str]
    rows: int
    digest: int
    partitioned_by: list[str]
    properties: dict[str, str]


class SavedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a step.

    Attributes:
        definition: ``Step.definition`` of the step that made it.
        values: the values that it keeps.
        tables: by name.
    """

    definition: dict[str, Any]
    values: dict[str, Any]
    tables: dict[str, SavedTable]


def save_steps(
    steps: Sequence[Step], spark: SparkSession, checkpoint: str, batch: int, location: str
) -> dict[str, SavedStep]:
    """Write the states of the steps that keep one into a new folder in ``location``; what the manifest needs. Blocks.

    Args:
        steps: of a job that does no batch meanwhile.
        spark: a session with Delta's jars.
        checkpoint: of the job.
        batch: the last one that was done.
        location: of the savepoint.
    """
    folder = open_folder(checkpoint, spark)
    root = f"state-{secrets.token_hex(6)}"
    return {
        step.name: SavedStep(
            definition=step.definition(),
            values=_values_at(folder, step.name, batch),
            tables={
                name: _save_table(
                    spark, f"{checkpoint}/{FOLDER}/{step.name}/{name}", batch, location, f"{root}/{step.name}/{name}"
                )
                for name in _list_tables(folder, step.name)
            },
        )
        for step in steps
        if step.stateful
    }


def _list_tables(folder: Folder, step: str) -> list[str]:
    """The names of the tables in a step's state; what a killed process has left without a log is not one."""
    state = f"{FOLDER}/{step}"
    return sorted(name for name in folder.list(state) if folder.list(f"{state}/{name}/_delta_log"))


def _values_at(folder: Folder, step: str, batch: int) -> dict[str, Any]:
    names = [name.removesuffix(".json") for name in folder.list(f"{FOLDER}/{step}/{_VALUES}")]
    done = [int(name) for name in names if name.isdigit() and int(name) <= batch]
    values_json = folder.read(f"{FOLDER}/{step}/{_VALUES}/{max(done)}.json") if done else None
    values: dict[str, Any] = json.loads(values_json) if values_json else {}
    return values


def _save_table(spark: SparkSession, path: str, batch: int, location: str, folder: str) -> SavedTable:
    path = spark_path(path)
    facts = read_facts(spark, path)
    rows = spark.read.format("delta").load(path).where(f"{BATCH} <= {batch}")
    target = f"{spark_path(location)}/{folder}"
    count, digest = _copy_rows(rows, lambda writer: writer.option("compression", "zstd").parquet(target))
    files = sorted(name for name in open_folder(location, spark).list(folder) if name.endswith(".parquet"))
    return SavedTable(
        folder=folder,
        files=files,
        rows=count,
        digest=digest,
        partitioned_by=facts.partitioned_by,
        properties=facts.properties,
    )


def _copy_rows(rows: DataFrame, write: Callable[[DataFrameWriter], None]) -> tuple[int, int]:
    """Write rows somewhere; how many there are, and the exclusive or of their hashes."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation = Observation()
    spark = rows.sparkSession
    before = spark.conf.get(_HASH_MAPS)
    spark.conf.set(_HASH_MAPS, "true")
    try:
        # By name: a table's columns may have another order after its schema has changed.
        digest = f.bit_xor(f.xxhash64(*(f.col(f"`{name}`") for name in sorted(rows.columns))))
        write(
            rows.observe(
                observation, f.count(f.lit(1)).alias("rows"), f.coalesce(digest, f.lit(0)).alias("digest")
            ).write
        )
    finally:
        spark.conf.set(_HASH_MAPS, str(before))
    return int(observation.get["rows"]), int(observation.get["digest"])


def step_refusals(saved: Mapping[str, SavedStep], steps: Sequence[Step]) -> list[str]:
    """Why the steps of a job can't continue from saved states, a sentence each; empty: they can. Pure."""
    stateful = {step.name: step for step in steps if step.stateful}
    reasons = [
        f"it holds the state of the step {name}, which the job does not have: add the step, or start without the savepoint"
        for name in saved
        if name not in stateful
    ]
    for name, step in stateful.items():
        if name not in saved:
            reasons.append(
                f"it holds no state of the step {name}, which would give wrong rows without the rows before the savepoint: "
                "add the step once the job runs, or start without the savepoint"
            )
        elif changed := describe_differences(saved[name].definition, step.definition()):
            reasons.append(f"the state of the step {name} was made with {', '.join(changed)}")
    return reasons


def restore_steps(manifest: SavepointManifest, spark: SparkSession, location: str, checkpoint: str) -> None:
    """Write the states into a checkpoint without batches; what an interrupted attempt has left there is replaced. Blocks.

    Raises:
        Fatal: a table is incomplete or damaged.
    """
    folder = open_folder(checkpoint, spark)
    for name, step in manifest.steps.items():
        state = f"{FOLDER}/{name}"
        for extra_table in set(folder.list(state)) - step.tables.keys():
            folder.remove(f"{state}/{extra_table}")
        for table, saved in step.tables.items():
            _restore_table(spark, saved, location, f"{checkpoint}/{state}/{table}")
        if step.values:
            folder.write(f"{state}/{_VALUES}/{manifest.batch}.json", json.dumps(step.values))


def _restore_table(spark: SparkSession, saved: SavedTable, location: str, path: str) -> None:
    names = set(open_folder(location, spark).list(saved.folder))
    if lost := [name for name in saved.files if name not in names]:
        raise Fatal(f"the savepoint {location} lacks files: {', '.join(f'{saved.folder}/{name}' for name in lost)}")
    root = f"{spark_path(location)}/{saved.folder}"
    rows = spark.read.parquet(*(f"{root}/{name}" for name in saved.files))

    def write(writer: DataFrameWriter) -> None:
        writer = writer.format("delta").mode("overwrite").option("overwriteSchema", "true").options(**saved.properties)
        (writer.partitionBy(*saved.partitioned_by) if saved.partitioned_by else writer).save(spark_path(path))

    count, digest = _copy_rows(rows, write)
    if (count, digest) != (saved.rows, saved.digest):
        raise Fatal(
            f"the savepoint {location} is damaged: {saved.folder} has {count} rows with the checksum {digest}, and "
            f"{saved.rows} rows with {saved.digest} were written"
        )
