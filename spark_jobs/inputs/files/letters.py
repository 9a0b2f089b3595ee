"""Bad rows of files: their dead letters and errors name the file and the row instead of a topic and an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.inputs.files.positions import BatchFile, locate_row

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Headers of a dead letter in addition to those of every job.
PATH_HEADER: Final = "__connect.errors.file.path"
ROW_HEADER: Final = "__connect.errors.file.row"
_READING: Final = "TASK_POLL"


class FileLetters(DeadLetters):
    """The policy for bad rows and bad files; ``files`` are those of the batch."""

    files: Sequence[BatchFile] = ()

    def where(self, topic: str, partition: int, offset: int) -> str:
        """The file and the row."""
        location = locate_row(self.files, offset)
        if location is None:
            return super().where(topic, partition, offset)
        file, row = location
        return file.name if file.error else f"{file.name} row {row}"

    def story(
        self, topic: str, partition: int, offset: int, error: BaseException | str, stage: str
    ) -> list[tuple[str, bytes | None]]:
        """The headers with the file and the row, which a file that can't be read has not."""
        headers = super().story(topic, partition, offset, error, stage)
        location = locate_row(self.files, offset)
        if headers and location is not None:
            headers.append((PATH_HEADER, location[0].name.encode("utf-8", "replace")))
            if not location[0].error:
                headers.append((ROW_HEADER, str(location[1]).encode()))
        return headers

    def report_file(self, namespace: str, file: BatchFile) -> None:
        """Take note of a file that can't be read. Blocks.

        Raises:
            Fatal: bad files are not tolerated, or the dead letter topic refuses this one.
            Retriable: Kafka does not take the dead letter.
        """
        if not self.tolerant:
            raise Fatal(
                f"the file {file.name} can't be read: {file.error}. Correct the file in its folder, or source.files.*, and "
                "start the job again; or set errors.tolerance=all to put such files aside (errors.deadletterqueue.topic.name)"
            )
        self.report(namespace, 0, file.first, file.name.encode("utf-8", "replace"), None, file.error, stage=_READING)
