"""Writes rows to MongoDB in a task: documents that only a newer change replaces, and deletes that are remembered.

A delete is remembered in a collection of its own (``guards_of``): the order number of the newest delete of each key, until it
expires. A change that is older than its key's delete is not written. A writer that lost a race with a delete (it read the
guards before, and wrote after it) removes what it wrote, since it reads them again after writing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.sinks.mongodb.documents import (
    collection_name,
    database_name,
    encoder_of,
    guards_of,
    id_of,
    make_hashable,
)
from spark_jobs.sinks.mongodb.requests import DELETE, INSERT, UPDATE, MongoEntry, Requests
from spark_jobs.sinks.mongodb.server import connect_mongodb, translate_errors
from spark_jobs.sinks.shared.model import Unfinished, WriteCounts
from spark_jobs.sinks.shared.templates import Unfilled
from spark_jobs.sinks.shared.values import NoText, build_document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spark_jobs.sinks.mongodb.config import MongoSettings
    from spark_jobs.sinks.shared.model import Refuse, RowTable, SinkRow

ORDER: Final = "ums_id_"
#: Of a guard: when it was written, for its expiry.
WRITTEN_AT: Final = "at"


class MongoClient:
    """See ``shared.model.RowClient``.

    Args:
        settings: the sink's.
        table: the rows' table.
    """

    def __init__(self, settings: MongoSettings, table: RowTable) -> None:
        self._settings = settings
        self._database = database_name(settings.database.of_table(table.namespace))
        self._name = collection_name(settings.collection.of_table(table.namespace))
        self._id = id_of(settings, table)
        self._encode = encoder_of(settings)
        # A point or a dollar in a name means something in an update, and nothing in a whole document.
        self._plain_names = all(name and "." not in name and not name.startswith("$") for name in table.columns)
        self._client: Any = None

    def write(self, rows: Sequence[SinkRow], refuse: Refuse) -> WriteCounts:
        """See ``RowClient.write``."""
        with translate_errors(self._settings):
            if self._client is None:
                self._client = connect_mongodb(self._settings)
            concern = self._client.write_concern.document
            requests = Requests(self._settings, self._client[self._database], concern)
            entries = self._name_entries(rows, requests)
            if self._settings.append:
                requests.send(INSERT, self._name, self._encode_entries(entries, self._build_insert, requests))
            elif self._settings.remembers:
                self._merge_rows(entries, requests)
            else:
                requests.send(UPDATE, self._name, self._encode_entries(entries, self._replaced, requests))
        refuse(requests.refused)
        if requests.left:
            raise Unfinished(requests.reason, requests.left, requests.done)
        return requests.done

    def close(self) -> None:
        """See ``RowClient.close``."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _merge_rows(self, entries: Sequence[MongoEntry], requests: Requests) -> None:
        """Rows of which a newer one stays, and deletes that are remembered."""
        deletes = self._encode_entries(
            [entry for entry in entries if entry.row.deleted], self._build_guarded_update, requests
        )
        remembered = requests.send(UPDATE, guards_of(self._name), deletes, counted=False)
        requests.send(DELETE, self._name, self._encode_entries(remembered, self._build_removal, requests))
        present = [entry for entry in entries if not entry.row.deleted]
        if not present:
            return
        before = self._orders(present)
        fresh = [
            entry for entry in present if before.get(make_hashable(entry.name), entry.row.order) <= entry.row.order
        ]
        requests.done.stale += len(present) - len(fresh)
        written = requests.send(UPDATE, self._name, self._encode_entries(fresh, self._replaced, requests))
        after = self._orders(written)
        late = [
            entry for entry in written if after.get(make_hashable(entry.name)) != before.get(make_hashable(entry.name))
        ]
        if late:
            requests.command(
                DELETE,
                self._name,
                [self._build_older_delete(entry.name, after[make_hashable(entry.name)]) for entry in late],
            )

    def _orders(self, entries: Sequence[MongoEntry]) -> dict[Any, int]:
        """The order numbers of the newest deletes of documents, by ``make_hashable``."""
        if not entries:
            return {}
        guards = self._client[self._database][guards_of(self._name)]
        matches = guards.find({"_id": {"$in": [entry.name for entry in entries]}}, {ORDER: 1})
        return {make_hashable(guard["_id"]): guard[ORDER] for guard in matches}

    def _name_entries(self, rows: Sequence[SinkRow], requests: Requests) -> list[MongoEntry]:
        entries = []
        for row in rows:
            try:
                entries.append(MongoEntry(row, self._id(row)))
            except (Unfilled, NoText) as error:
                requests.refused.append((row, str(error)))
        return entries

    def _encode_entries(
        self, entries: Sequence[MongoEntry], form: Callable[[MongoEntry], Mapping[str, Any]], requests: Requests
    ) -> list[MongoEntry]:
        """The entries with their contents, without those that can't be BSON."""
        filled = []
        for entry in entries:
            try:
                filled.append(replace(entry, content=self._encode(form(entry))))
            except (Unfilled, NoText) as error:
                requests.refused.append((entry.row, str(error)))
        return filled

    def _build_insert(self, entry: MongoEntry) -> Mapping[str, Any]:
        return {"_id": entry.name, **build_document(entry.row)}

    def _replaced(self, entry: MongoEntry) -> Mapping[str, Any]:
        row = entry.row
        fields = build_document(row, active=self._settings.soft)
        fields.pop("_id", None)
        if row.deleted and self._plain_names:
            # Of a delete the key alone may be known: the other fields stay as they are.
            change: dict[str, Any] = {"$set": {name: value for name, value in fields.items() if value is not None}}
        else:
            change = {"_id": entry.name, **fields}
        return {"q": _not_newer(entry), "u": change, "upsert": True}

    def _build_guarded_update(self, entry: MongoEntry) -> Mapping[str, Any]:
        change = {"$set": {ORDER: entry.row.order, WRITTEN_AT: datetime.now(UTC)}}
        return {"q": _not_newer(entry), "u": change, "upsert": True}

    def _build_removal(self, entry: MongoEntry) -> Mapping[str, Any]:
        return {"q": _not_newer(entry), "limit": 1}

    def _build_older_delete(self, name: Any, order: int) -> bytes:
        return self._encode({"q": {"_id": name, ORDER: {"$lt": order}}, "limit": 1})


def _not_newer(entry: MongoEntry) -> Mapping[str, Any]:
    # A document without an order number, which another program has written, is older than all changes.
    return {"_id": entry.name, ORDER: {"$not": {"$gt": entry.row.order}}}
