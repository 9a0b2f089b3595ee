"""Commands that write several documents, and the meaning of each error in their answers. Blocking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.mongodb.config import NAME, PREFIX
from spark_jobs.sinks.mongodb.server import EXISTS, PASSING, RIGHT
from spark_jobs.sinks.shared.model import WriteCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spark_jobs.sinks.mongodb.config import MongoSettings
    from spark_jobs.sinks.shared.model import SinkRow

UPDATE: Final = "update"
INSERT: Final = "insert"
DELETE: Final = "delete"
#: The list of each command.
_LISTS: Final = {UPDATE: "updates", INSERT: "documents", DELETE: "deletes"}
#: Bytes of a command, about; MongoDB takes 48 MB.
_LONGEST: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class MongoEntry:
    """A row, the name of its document (``_id``), and what a command says of it, in BSON."""

    row: SinkRow
    name: Any
    content: bytes = b""


@dataclass(slots=True)
class Requests:
    """The commands of one ``write``, and what became of its rows.

    Attributes:
        settings: the sink's.
        database: of pymongo.
        concern: ``writeConcern``.
        done: counts rows and commands.
        refused: rows that the server refuses, with the reasons.
        left: rows that may be written later.
        reason: why.
    """

    settings: MongoSettings
    database: Any
    concern: Mapping[str, Any]
    done: WriteCounts = field(default_factory=WriteCounts)
    refused: list[tuple[SinkRow, str]] = field(default_factory=list)
    left: list[SinkRow] = field(default_factory=list)
    reason: str = ""

    def send(
        self, kind: str, collection: str, entries: Sequence[MongoEntry], *, counted: bool = True
    ) -> list[MongoEntry]:
        """Send a command, or several if it would be too long.

        Args:
            kind: ``UPDATE`` (with upsert, where a newer document does not match), ``INSERT`` or ``DELETE``.
            collection: its name.
            entries: with their contents.
            counted: whether rows are written by it; else another command follows.

        Returns:
            The entries that are written, or have a newer document.
        """
        fine: list[MongoEntry] = []
        for part in _split_entries(entries):
            answer = self.command(kind, collection, [entry.content for entry in part])
            errors = {error["index"]: error for error in answer.get("writeErrors", ())}
            met = [part[number] for number, error in errors.items() if _is_there(error)]
            older, there = self._retry_without_upsert(kind, collection, met)
            newer = len(there) - older
            for number, error in errors.items():
                if not _is_there(error):
                    self._judge_error(error, part[number].row)
            good = [entry for number, entry in enumerate(part) if number not in errors] + there
            if counted:
                self.done.rows += len(good) - newer
                self.done.stale += newer
            fine += good
        return fine

    def command(self, kind: str, collection: str, items: Sequence[bytes]) -> Mapping[str, Any]:
        """Send one command; its answer.

        Raises:
            Retriable: the servers that have to confirm it have not.
        """
        from bson.raw_bson import RawBSONDocument

        self.done.requests += 1
        answer: Mapping[str, Any] = self.database.command(
            kind,
            collection,
            **{_LISTS[kind]: [RawBSONDocument(item) for item in items]},
            ordered=False,
            writeConcern=dict(self.concern),
        )
        concern = answer.get("writeConcernError")
        if concern:
            raise Retriable(f"{self._describe_server}: {concern.get('errmsg')}")
        return answer

    def _retry_without_upsert(
        self, kind: str, collection: str, met: Sequence[MongoEntry]
    ) -> tuple[int, list[MongoEntry]]:
        """Update documents that another writer has inserted meanwhile, which may be older.

        Returns:
            How many were; the entries without those that have another error now.
        """
        if kind != UPDATE or not met:
            return 0, list(met)
        # Without upsert the command finds an older one, and leaves a newer one alone.
        answer = self.command(kind, collection, [without_upsert(entry.content) for entry in met])
        errors = {error["index"]: error for error in answer.get("writeErrors", ())}
        for number, error in errors.items():
            self._judge_error(error, met[number].row)
        return int(answer.get("n", 0)), [entry for number, entry in enumerate(met) if number not in errors]

    def _judge_error(self, error: Mapping[str, Any], row: SinkRow) -> None:
        """Put the row where its error says; raises ``Fatal`` where the login may not write."""
        code = error.get("code", 0)
        message = f"{self._describe_server}: {error.get('errmsg')}"
        if code in PASSING:
            self.left.append(row)
            self.reason = message
        elif code in RIGHT:
            raise Fatal(f"{message}. Give the login ({PREFIX}user) the role readWrite in the database")
        else:
            self.refused.append((row, message))

    @property
    def _describe_server(self) -> str:
        return f"{NAME} {self.settings.access.address}"


def without_upsert(content: bytes) -> bytes:
    """A statement of an update that inserts nothing. Pure."""
    import bson
    from bson.codec_options import CodecOptions
    from bson.raw_bson import RawBSONDocument

    options: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
    return bson.encode({**RawBSONDocument(content, options), "upsert": False})


def _is_there(error: Mapping[str, Any]) -> bool:
    """Whether an error says that there is a document of this name; another index may have to be unique, too."""
    if error.get("code") != EXISTS:
        return False
    pattern = error.get("keyPattern")
    return list(pattern) == ["_id"] if pattern else "index: " not in str(error.get("errmsg")) or "_id_" in str(error)


def _split_entries(entries: Sequence[MongoEntry]) -> Iterator[Sequence[MongoEntry]]:
    start = size = 0
    for number, entry in enumerate(entries):
        if size and size + len(entry.content) > _LONGEST:
            yield entries[start:number]
            start, size = number, 0
        size += len(entry.content)
    if entries:
        yield entries[start:]
