"""The part of a checkpoint that tells a job's position: read into a savepoint, and written into an empty checkpoint."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs.kafka.ranges import last_batch
from spark_jobs.rows import schema_watch

if TYPE_CHECKING:
    from spark_jobs.inputs.contract import Input
    from spark_jobs.spark.checkpoint import Folder

#: The tables that the source knows.
_SCHEMAS: Final = "schemas"


def read_position(folder: Folder, input_class: type[Input]) -> tuple[int | None, dict[str, str]]:
    """The last batch that was done, and the checkpoint's files by which a job continues after it, by name. Blocks.

    A batch that is planned and not done is left out: the job plans it again.

    Args:
        folder: the checkpoint.
        input_class: of the job's input.

    Raises:
        Fatal: the checkpoint lacks a file that Spark needs.
    """
    batch = last_batch(folder, "commits")
    if batch is None:
        return None, {}
    names = [f"offsets/{batch}", f"commits/{batch}"]
    if batch:
        names.append(f"offsets/{batch - 1}")  # Spark starts a batch from the end of the one before
    numbers = [int(name[:-5]) for name in folder.list(_SCHEMAS) if name.endswith(".json") and name[:-5].isdigit()]
    if numbers:
        names.append(f"{_SCHEMAS}/{max(numbers)}.json")
    if folder.read(schema_watch.FILE) is not None:
        names.append(schema_watch.FILE)
    names += input_class.position_files(folder, batch)
    files = {name: content for name in names if (content := folder.read(name)) is not None}
    missing = [name for name in names if name not in files]
    if missing:
        raise Fatal(f"the checkpoint lacks {', '.join(missing)}, so the job's position is not known")
    return batch, files


def write_position(folder: Folder, files: dict[str, str]) -> None:
    """Write a position into a checkpoint without batches. Blocks.

    The query gets an id of its own: Spark refuses two queries of one id in one application. The commit is written last:
    before it, the checkpoint has no batch that was done, and the savepoint is used again. What a start from another savepoint
    has left, which was interrupted, may be of later batches: it is removed.
    """
    for part in sorted({"commits", "offsets", _SCHEMAS} | {name.rpartition("/")[0] for name in files if "/" in name}):
        folder.remove(part)
    folder.delete(schema_watch.FILE)
    folder.write("metadata", json.dumps({"id": str(uuid.uuid4())}))
    for name in sorted(files, key=lambda file: (file.startswith("commits/"), file)):
        folder.write(name, files[name])
