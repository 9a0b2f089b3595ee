"""A template for sinks that write one batch to several systems, all or nothing, by their prepared transactions.

The contract, as in Flink's TwoPhaseCommitSinkFunction. A batch goes through these steps on the driver:

1. begin: ``begin`` with a transaction of a new name. A name is never used a second time, not for a retry either.
2. write: ``write_rows`` writes the batch. Whatever it writes belongs to the transaction and is not visible.
3. pre-commit (the vote): when ``pre_commit`` returns, every system has prepared its part: it can commit it, also after a crash
   of the job and of itself. Where tasks prepare their own parts at the end of ``write_rows``, there is nothing to do here.
4. decide: one record in a compacted topic says that the transaction is committed. This is the point of no return. A batch
   whose decision is not there was never written.
5. commit: ``commit`` makes every part visible. It is called again, after any failure, until it has returned once, so it must
   be idempotent: a part that is committed already is left alone.

A failure before the decision aborts: ``abort`` rolls back every part, and is idempotent, too. recover: before the first batch
of a run, and after each failure, ``in_doubt`` lists the transactions that systems hold prepared. The one that the last
decision names is committed, all others are aborted (presumed abort).

A job that was replaced can't decide any more: its producer is fenced by that of the next run before this one looks for
transactions in doubt. What it still prepares blocks rows until the next recovery, and is never committed.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.errors import Retriable
from spark_jobs.contract import Sink
from spark_jobs.kafka.decisions import Decision, Decisions
from spark_jobs.spark.checkpoint import open_folder
from spark_jobs.write_ahead_log import no_points, ranges_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spark_jobs.contract import Batch, JobContext

_NAME: Final = re.compile(r"millrace-([0-9a-f]{12})-(\d+)-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One attempt to write one batch.

    Attributes:
        job: 12 hexadecimal digits that stand for the job and its Kafka cluster.
        batch: the number of the batch.
        attempt: 8 hexadecimal digits, new for each attempt.
    """

    job: str
    batch: int
    attempt: str

    @property
    def name(self) -> str:
        """At most 50 ASCII letters, digits and '-': every system takes it, with something behind it."""
        return f"millrace-{self.job}-{self.batch}-{self.attempt}"

    @classmethod
    def parse(cls, transaction_name: str) -> Transaction | None:
        """The transaction whose name ``transaction_name`` begins with; None if it is not such a name. Pure."""
        match = _NAME.match(transaction_name)
        return None if match is None else cls(match[1], int(match[2]), match[3])


def is_decided(decision: Decision | None, transaction: Transaction) -> bool:
    """Whether a transaction in doubt is to be committed; if not, it is to be aborted. Pure."""
    return decision is not None and (decision.batch, decision.attempt) == (transaction.batch, transaction.attempt)


def is_written(decision: Decision | None, batch: Decision) -> bool:
    """Whether the last decision is about this batch: the same number and offsets in the same checkpoint. Pure."""
    return decision is not None and (decision.batch, decision.checkpoint, decision.ranges) == (
        batch.batch,
        batch.checkpoint,
        batch.ranges,
    )


class TwoPhaseCommitSink(Sink):
    """Derive from it, and write the methods of the contract instead of ``write``; see the module. All of them may block.

    They raise ``Retriable`` while a system is unavailable: the batch is retried from the recovery on.
    """

    #: Called at the end of each step; only tests set it.
    points: Callable[[str], None] = staticmethod(no_points)

    def __init__(self, context: JobContext) -> None:
        super().__init__(context)
        self._decisions: Decisions | None = None
        self._checkpoint = ""

    def uses_two_phases(self) -> bool:
        """Whether this job needs transactions over several systems. Pure."""
        return self.context.config.get("guarantee") in (None, "exactly-once")

    def begin(self, transaction: Transaction) -> None:
        """Begin a transaction."""

    @abstractmethod
    def write_rows(self, batch: Batch, transaction: Transaction | None) -> int:
        """Write a batch in a transaction (None: without one); returns rows written. Raises as ``Sink.write``."""

    def pre_commit(self, transaction: Transaction) -> None:
        """Prepare every part that ``write_rows`` has not prepared."""

    @abstractmethod
    def commit(self, transaction: Transaction) -> None:
        """Commit every part that is prepared."""

    @abstractmethod
    def abort(self, transaction: Transaction) -> None:
        """Roll back every part, prepared or not."""

    @abstractmethod
    def in_doubt(self, job: str) -> Iterable[Transaction]:
        """The transactions of a job (``Transaction.job``) that some system holds prepared."""

    def write(self, batch: Batch) -> int:
        """See the module and ``Sink.write``. Blocks."""
        if not self.uses_two_phases():
            return self.write_rows(batch, None)
        if self._decisions is None:
            self._recover_transactions()
        decisions = self._decisions
        if decisions is None:  # for the type checker
            raise Retriable("two-phase commit: the recovery has not ended")
        transaction = Transaction(decisions.job, batch.id, secrets.token_hex(4))
        decision = Decision(batch.id, transaction.attempt, self._checkpoint, ranges_of(batch))
        if is_written(decisions.last, decision):
            self.context.log.info("batch %d was committed before and is left out", batch.id)
            return 0
        try:
            self.begin(transaction)
            rows = self.write_rows(batch, transaction)
            self.points("written")
            self.pre_commit(transaction)
            self.points("prepared")
        except Exception:
            # A worker that is still at work may prepare a part after this: the next recovery rolls it back.
            self._forget_recovery()
            try:
                self.abort(transaction)
            except Retriable as error:
                self.context.log.info("batch %d is rolled back by the next recovery: %s", batch.id, error)
            raise
        try:
            decisions.decide(decision)
            self.points("decided")
            self.commit(transaction)
        except Exception:
            # Only the topic knows whether it is decided: the recovery reads it.
            self._forget_recovery()
            raise
        self.points("committed")
        return rows

    def close(self) -> None:
        """See ``Sink.close``."""
        self._forget_recovery()

    def _recover_transactions(self) -> None:
        """Become the only run that decides, then commit or abort whatever is in doubt."""
        config = self.context.config
        metadata = open_folder(str(config["checkpoint.location"]), self.context.spark).read("metadata") or ""
        self._checkpoint = hashlib.sha256(metadata.encode()).hexdigest()[:12]
        decisions = Decisions(config, self.context.name)
        try:
            for transaction in self.in_doubt(decisions.job):
                if is_decided(decisions.last, transaction):
                    self.context.log.info("batch %d was decided before and is committed now", transaction.batch)
                    self.commit(transaction)
                else:
                    self.context.log.info("batch %d was not decided and is rolled back", transaction.batch)
                    self.abort(transaction)
        except Exception:
            decisions.close()
            raise
        self._decisions = decisions

    def _forget_recovery(self) -> None:
        """Let the next write recover first."""
        if self._decisions is not None:
            self._decisions.close()
        self._decisions = None
