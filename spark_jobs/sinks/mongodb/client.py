"""Writes rows to MongoDB in a task: documents that only a newer change replaces, and deletes that are remembered.

A delete is remembered in a collection of its own (``guards_of``): the order number of the newest delete of each key, until it
expires. A change that is older than its key's delete is not written. A writer that lost a race with a delete (it read the
guards before, and wrote after it) removes what it wrote, since it reads them again after writing.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.sinks.mongodb.config import NAME, PREFIX
from spark_jobs.sinks.shared.model import Unfinished, Written
from spark_jobs.sinks.shared.templates import Unfilled
from spark_jobs.sinks.shared.values import NoText, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from spark_jobs.sinks.mongodb.config import Settings
    from spark_jobs.sinks.shared.model import Refuse, Row, RowTable

ORDER: Final = "ums_id_"
#: Of a guard: when it was written, for its expiry.
WRITTEN_AT: Final = "at"
_EXISTS: Final = 11000
#: Of a server that steps down, recovers, shuts down, is too busy, or ran into another writer.
_PASSING: Final = frozenset({6, 7, 50, 89, 91, 112, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436, 16500})
_RIGHT: Final = frozenset({13, 8000})
_LARGEST: Final = 16 << 20
#: Most values.
_AS_THEY_ARE: Final = frozenset({int, str, float, bool, bytes, type(None)})
#: Of a Decimal128.
_DIGITS: Final = 34


class MongoClient:
    """See ``shared.model.RowClient``.

    Args:
        settings: the sink's.
        table: the rows' table.
    """

    def __init__(self, settings: Settings, table: RowTable) -> None:
        self._settings = settings
        self._table = table
        self._name = settings.collection.of_table(table.namespace)
        self._id = settings.id.bind(table) if settings.id.text else None
        # A point or a dollar in a name means something in an update, and nothing in a whole document.
        self._plain_names = not any("." in name or name.startswith("$") for name in table.columns)
        self._client: Any = None
        self._kinds: Any = import_module("pymongo")

    def write(self, rows: Sequence[Row], refuse: Refuse) -> Written:
        """See ``RowClient.write``."""
        refused: list[tuple[Row, str]] = []
        waiting: list[tuple[Any, Row]] = []
        for row in rows:
            try:
                waiting.append((self._id_of(row), row))
            except (Unfilled, NoText) as error:
                refused.append((row, str(error)))
        with faults(self._settings):
            if self._client is None:
                self._client = connect(self._settings)
            database = self._client[self._settings.database]
            done = Written()
            bulk = _Bulk(self._settings, done, refused)
            if self._settings.remembers:
                self._merge(database, waiting, bulk)
            else:
                bulk.run(database[self._name], [(self._request(name, row), row) for name, row in waiting])
        refuse(refused)
        if bulk.left:
            raise Unfinished(bulk.reason, bulk.left, done)
        return done

    def close(self) -> None:
        """See ``RowClient.close``."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.close()

    def _merge(self, database: Any, rows: Sequence[tuple[Any, Row]], bulk: _Bulk) -> None:
        """Rows whose deletes are remembered."""
        from pymongo import DeleteOne, UpdateOne

        guards, target = database[guards_of(self._name)], database[self._name]
        deletes = [(name, row) for name, row in rows if row.deleted]
        now = datetime.now(UTC)
        bulk.run(
            guards,
            [
                (
                    UpdateOne(
                        {"_id": name, ORDER: {"$lte": row.order}},
                        {"$set": {ORDER: row.order, WRITTEN_AT: now}},
                        upsert=True,
                    ),
                    row,
                )
                for name, row in deletes
            ],
            counted=False,
        )
        bulk.run(target, [(DeleteOne({"_id": name, ORDER: {"$lte": row.order}}), row) for name, row in deletes])
        names = [name for name, row in rows if not row.deleted]
        newest = _orders(guards, names)
        present = []
        for name, row in rows:
            if row.deleted:
                continue
            if newest.get(name, row.order) > row.order:
                bulk.done.stale += 1
            else:
                present.append((self._request(name, row), row))
        bulk.run(target, present)
        late = [
            DeleteOne({"_id": name, ORDER: {"$lt": order}})
            for name, order in _orders(guards, names).items()
            if order != newest.get(name)
        ]
        if late:
            target.bulk_write(late, ordered=False)

    def _request(self, name: Any, row: Row) -> Any:
        """The request for one row."""
        chosen = self._settings
        if chosen.append:
            return self._kinds.InsertOne({**bson_of(document(row)), "_id": name})
        older = {"_id": name, ORDER: {"$lte": row.order}}
        fields = bson_of(document(row, active=chosen.soft))
        fields.pop("_id", None)
        if row.deleted and self._plain_names:
            # Of a delete the key alone may be known: the other fields stay as they are.
            return self._kinds.UpdateOne(
                older, {"$set": {key: value for key, value in fields.items() if value is not None}}, upsert=True
            )
        return self._kinds.ReplaceOne(older, {"_id": name, **fields}, upsert=True)

    def _id_of(self, row: Row) -> Any:
        """The document's ``_id``; raises ``Unfilled`` and ``NoText``."""
        if self._settings.append:
            return f"{row.topic}-{row.partition}-{row.offset}-{row.number}"
        if self._id is not None:
            return self._id(row)
        lacking = [name for name in self._table.keys if row.values[name] is None]
        if lacking:
            raise Unfilled(f"the column {', '.join(lacking)} is null, and belongs to the key")
        values = bson_of({name: row.values[name] for name in self._table.keys})
        return _Names(values) if len(values) > 1 else next(iter(values.values()))


class _Bulk:
    """Requests for rows, and their fates.

    Args:
        settings: the sink's.
        done: counts rows.
        refused: gets refused rows with the reasons.
    """

    def __init__(self, settings: Settings, done: Written, refused: list[tuple[Row, str]]) -> None:
        self._settings = settings
        self.done = done
        self.refused = refused
        self.left: list[Row] = []
        self.reason = ""

    def run(self, collection: Any, requests: Sequence[tuple[Any, Row]], *, counted: bool = True) -> None:
        """Send requests together.

        Args:
            collection: of pymongo.
            requests: each with its row.
            counted: whether a row is written by its request; else another one follows.
        """
        from pymongo.errors import BulkWriteError, DocumentTooLarge, OperationFailure

        if not requests:
            return
        self.done.requests += 1
        errors: Sequence[Mapping[str, Any]] = ()
        try:
            collection.bulk_write([request for request, _ in requests], ordered=False)
        except BulkWriteError as error:
            details = error.details or {}
            errors = details.get("writeErrors", ())
            concern = details.get("writeConcernErrors")
            if concern:
                raise Retriable(f"{NAME} {self._settings.access.address}: {concern[0].get('errmsg')}") from error
        except DocumentTooLarge:
            self._cut(collection, requests, f"its document is larger than {_LARGEST >> 20} MiB", counted=counted)
            return
        except OperationFailure as error:
            # A server with MongoDB's protocol may say so of the whole request: then each row has to be asked for.
            if error.code != _EXISTS:
                raise
            self._cut(collection, requests, "", counted=counted)
            return
        for problem in errors:
            self._judge(problem, requests[problem["index"]][1], counted=counted)
        if counted:
            self.done.rows += len(requests) - len(errors)

    def _cut(self, collection: Any, requests: Sequence[tuple[Any, Row]], reason: str, *, counted: bool) -> None:
        """Send requests in halves; one that is alone is refused with the reason, or has a newer document without one."""
        if len(requests) == 1:
            if reason:
                self.refused.append((requests[0][1], reason))
            else:
                self.done.stale += counted  # a newer one is there
            return
        half = len(requests) // 2
        self.run(collection, requests[:half], counted=counted)
        self.run(collection, requests[half:], counted=counted)

    def _judge(self, error: Mapping[str, Any], row: Row, *, counted: bool) -> None:
        """Count one error; raises ``Fatal`` where the login may not write."""
        code = error.get("code", 0)
        text = f"{NAME} {self._settings.access.address}: {error.get('errmsg')}"
        if code == _EXISTS:
            self.done.stale += counted  # a newer one is there
        elif code in _PASSING:
            self.left.append(row)
            self.reason = text
        elif code in _RIGHT:
            raise Fatal(f"{text}. Give the login ({PREFIX}user) the right to write to {self._settings.database}")
        else:
            self.refused.append((row, text))


def guards_of(collection: str) -> str:
    """The collection that remembers the deletes of another one."""
    return f"{collection}_ums_deletes"


def _orders(guards: Any, names: Sequence[Any]) -> dict[Any, int]:
    """The order numbers of the newest deletes of documents."""
    if not names:
        return {}
    matches = guards.find({"_id": {"$in": list(names)}}, {ORDER: 1})
    return {_frozen(guard["_id"]): guard[ORDER] for guard in matches}


class _Names(dict[str, Any]):
    """The values of a key of several columns, as an ``_id``; hashable, for tables of names."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def _frozen(name: Any) -> Any:
    return _Names(name) if isinstance(name, dict) else name


def bson_of(value: Any) -> Any:
    """A value as BSON has it: decimals of up to 34 digits as they are, longer ones as text; dates at midnight, UTC. Pure."""
    if type(value) in _AS_THEY_ARE:
        return value
    match value:
        case dict():
            return {key: bson_of(item) for key, item in value.items()}
        case list():
            return [bson_of(item) for item in value]
        case Decimal():
            from bson.decimal128 import Decimal128

            # The driver would round it without a word.
            return Decimal128(value) if len(value.as_tuple().digits) <= _DIGITS else format(value, "f")
        case datetime():
            return value
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def connect(settings: Settings) -> Any:
    """A client of the driver; connects with the first request."""
    import pymongo

    access = settings.access
    wait_ms = int(access.timeout_s * 1000)
    options: dict[str, Any] = {
        "serverSelectionTimeoutMS": wait_ms,
        "connectTimeoutMS": wait_ms,
        "socketTimeoutMS": wait_ms,
        "appname": "millrace",
        "tz_aware": True,
    }
    if "w=" not in settings.url:
        options["w"] = "majority"
    if access.user:
        options |= {"username": access.user, "password": access.password}
    if access.ssl_mode not in ("disable", "prefer"):
        options["tls"] = True
        options["tlsAllowInvalidCertificates"] = access.ssl_mode == "require"
        options["tlsAllowInvalidHostnames"] = access.ssl_mode != "verify-full"
        options |= {"tlsCAFile": access.ssl_root_cert} if access.ssl_root_cert else {}
        options |= {"tlsCertificateKeyFile": access.ssl_cert} if access.ssl_cert else {}
    return pymongo.MongoClient(settings.url, **options)


@contextmanager
def faults(settings: Settings) -> Iterator[None]:
    """Turns the driver's errors into ours."""
    from pymongo import errors as mongo

    where = f"{NAME} {settings.access.address}"
    try:
        yield
    except (mongo.ConfigurationError, mongo.InvalidURI) as error:
        raise Fatal(f"{where}: {error}. Correct {PREFIX}url or {PREFIX}ssl.*") from error
    except mongo.OperationFailure as error:
        if error.code == 18:
            raise Fatal(
                f"{where}: {error.details and error.details.get('errmsg')}. Correct {PREFIX}user and {PREFIX}password"
            ) from error
        if error.code in _PASSING:
            raise Retriable(f"{where}: {error}") from error
        raise Fatal(
            f"{where}: {error}. Correct the rights of {PREFIX}user, {PREFIX}database or {PREFIX}collection"
        ) from error
    except (mongo.ConnectionFailure, mongo.WTimeoutError, OSError) as error:
        raise Retriable(f"{where} does not answer: {error}") from error
    except mongo.PyMongoError as error:
        raise Fatal(f"{where}: {error}") from error
