"""The JDBC sink: tables that follow the source's, in PostgreSQL, MariaDB and others by dialect."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar, Final

from spark_jobs.metrics import JobMetric
from spark_jobs.sinks.jdbc import branches
from spark_jobs.sinks.jdbc.config import CONFIG_DEF, all_settings, check_options
from spark_jobs.sinks.jdbc.database import Database, JdbcTotals, login_problem
from spark_jobs.sinks.jdbc.dialect.dialects import load_dialect
from spark_jobs.two_phase_commit import Transaction, TwoPhaseCommitSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from connectors.options import Config, ConfigDef
    from spark_jobs.contract import Batch, JobContext, TableSchema
    from spark_jobs.sinks.jdbc.config import JdbcSettings
    from spark_jobs.sinks.jdbc.read_back import JdbcTables

METRICS: Final = (
    JobMetric("jdbc_rows_total", "counter", "rows", "Rows given to tasks of this run, before reduction per key."),
    JobMetric("jdbc_loaded_total", "counter", "rows", "Rows loaded into tables in this run."),
    JobMetric(
        "jdbc_skipped_total", "counter", "rows", "Rows left out because they were committed before (mode insert)."
    ),
    JobMetric(
        "jdbc_bad_total", "counter", "rows", "Rows that the database refused and that were put aside in this run."
    ),
    JobMetric("jdbc_retries_total", "counter", "", "Transactions that were retried in this run."),
)


class JdbcSink(TwoPhaseCommitSink):
    """Writes tables: upsert by ``ums_id_``, insert only, or split; see docs/jobs/jdbc.md.

    With a second database (``sink.jdbc.with.url``) a batch is one transaction over both: the tasks prepare a part per table and
    database, see ``two_phase_commit``.
    """

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    guarantees: ClassVar[tuple[str, ...]] = ("exactly-once", "at-least-once", "none")
    metrics: ClassVar[tuple[JobMetric, ...]] = METRICS
    takes_rows: ClassVar[bool] = True

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._databases = [Database(context, chosen) for chosen in all_settings(context.config)]

    @classmethod
    def read_back(cls, properties: Mapping[str, str]) -> JdbcTables:
        """The tables that a job with these properties writes, for ``millrace verify``.

        Raises:
            Fatal: they have no row of each key.
        """
        from spark_jobs.sinks.jdbc.read_back import JdbcTables

        return JdbcTables(properties)

    @classmethod
    def validate(cls, config: Config) -> list[str]:
        """Options that don't go together."""
        return check_options(config)

    @classmethod
    def plan(cls, config: Config) -> list[str]:
        """Where it writes, and how."""
        lines = [
            f"jdbc: {chosen.login.text}, mode {chosen.mode}, deletes {chosen.delete_mode}, table {chosen.table}"
            + (f" in schema {chosen.schema}" if chosen.schema else "")
            + f", {chosen.connections} connections per table"
            for chosen in all_settings(config)
        ]
        if len(lines) > 1:
            lines.append("jdbc: each batch is one transaction over these databases (two-phase commit)")
        return lines + [f"jdbc: {complaint}" for complaint in cls.check(config)]

    @classmethod
    def check(cls, config: Config) -> list[str]:
        """Whether the database can be reached and lets the login do what the sink needs. Blocks, at most for a timeout."""
        databases = all_settings(config)
        messages = [(chosen, _complaints_of(chosen, together=len(databases) > 1)) for chosen in databases]
        return [
            message if chosen is databases[0] else message.replace("sink.jdbc.", "sink.jdbc.with.", 1)
            for chosen, of_database in messages
            for message in of_database
        ]

    def refusal(self, schema: TableSchema) -> str:
        """See ``contract.Sink``."""
        return next(filter(None, (database.refusal(schema) for database in self._databases)), "")

    def uses_two_phases(self) -> bool:
        """See ``TwoPhaseCommitSink``: with one database its own transactions are enough."""
        return len(self._databases) > 1 and super().uses_two_phases()

    def write_rows(self, batch: Batch, transaction: Transaction | None) -> int:
        """Write a batch into every database; see ``TwoPhaseCommitSink``.

        Returns rows written after reduction to the newest per key, of the first database.
        """
        tables = list(batch.changes())
        totals = []
        for number, database in enumerate(self._databases):
            totals.append(database.write(tables, "" if transaction is None else f"{transaction.name}-{number}"))
            self.points(f"written {number}")
        self._count_append(totals[0], batch.id)
        return totals[0].loaded

    def _count_append(self, totals: JdbcTotals, batch: int) -> None:
        metrics = self.context.metrics
        for name in ("rows", "loaded", "skipped", "bad", "retries"):
            key = f"jdbc_{name}_total"
            metrics[key] = metrics.get(key, 0.0) + getattr(totals, name)
        if totals.skipped:
            self.context.log.info("batch %d: %d rows were committed before and are skipped", batch, totals.skipped)

    def commit(self, transaction: Transaction) -> None:
        """See ``TwoPhaseCommitSink``."""
        for number, database in enumerate(self._databases):
            with database.connection() as connection:
                branches.end_transaction(connection, transaction.name, commit=True)
            self.points(f"committed {number}")

    def abort(self, transaction: Transaction) -> None:
        """See ``TwoPhaseCommitSink``."""
        for database in self._databases:
            with database.connection() as connection:
                branches.end_transaction(connection, transaction.name, commit=False)

    def in_doubt(self, job: str) -> Iterable[Transaction]:
        """See ``TwoPhaseCommitSink``."""
        names: set[str] = set()
        for database in self._databases:
            with database.connection() as connection:
                names.update(branches.list_branches(connection))
        transactions = {Transaction.parse(name) for name in names}
        return sorted(
            (transaction for transaction in transactions if transaction is not None and transaction.job == job),
            key=lambda transaction: transaction.name,
        )

    def give_up(self) -> None:
        """See ``contract.Sink``."""
        for database in self._databases:
            database.give_up()

    def idle(self) -> None:
        """Forget old deletes, now and then."""
        for database in self._databases:
            database.idle()


def _complaints_of(chosen: JdbcSettings, *, together: bool) -> list[str]:
    """The complaints of one database; ``together``: it is one of several in a transaction. Blocks."""
    kind = load_dialect(chosen.login.address.dialect)
    try:
        with contextlib.closing(kind.connect(chosen.login)) as connection:
            schema = "" if "${" in chosen.schema else chosen.schema
            lacking = kind.rights(connection, schema, create=chosen.auto_create)
            messages = [f"sink.jdbc.user: {problem}" for problem in lacking]
            problem = branches.check_server(kind, connection) if together else ""
            return [*messages, *([f"sink.jdbc.url: {problem}"] if problem else [])]
    except Exception as error:
        fault = kind.classify(error)
        if fault is None:
            if isinstance(error, OSError):
                return [f"sink.jdbc.ssl.root.cert: {chosen.login.text}: {error}"]
            raise
        return [login_problem(chosen, error)]
