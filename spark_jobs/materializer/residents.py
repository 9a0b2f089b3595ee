"""Keeps open buckets in a Python worker process of Spark between tasks."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal, Retriable, Skippable
from spark_jobs.materializer.bucket import Bucket
from spark_jobs.materializer.config import EngineFactory
from spark_jobs.materializer.passes import Result
from spark_jobs.materializer.state.changelog import Changelog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_jobs.materializer.config import BucketOptions
    from spark_jobs.materializer.contract import Engine, InputRecord
    from spark_jobs.materializer.passes import PassRange

#: Jobs, or topics of a job with many, whose clients one Python worker keeps.
_RESIDENT_JOBS: Final = 8


class ResidentBuckets:
    """Holds what one Python worker process keeps between tasks: a consumer, and for some buckets producer and cache."""

    def __init__(self, options: BucketOptions) -> None:
        self.options = options
        self.changelog = Changelog(options.client, options.changelog_topic, options.group)
        self._buckets: OrderedDict[int, Bucket] = OrderedDict()
        self._router: Engine | None = None

    def bucket(self, number: int) -> Bucket:
        """The bucket, opened if it isn't; the one that was not used for longest is closed if there are too many."""
        bucket = self._buckets.get(number)
        if bucket is None:
            while len(self._buckets) >= self.options.resident_buckets:
                self._buckets.popitem(last=False)[1].close()
            bucket = self._buckets[number] = Bucket(self.options, number, self.changelog)
        self._buckets.move_to_end(number)
        return bucket

    @property
    def router(self) -> Engine:
        """An engine that names the rows of records and merges none."""
        if self._router is None:
            self._router = self.options.engine(0)
        return self._router

    def close(self) -> None:
        """Close everything."""
        for bucket in self._buckets.values():
            bucket.close()
        self._buckets.clear()
        self.changelog.close()
        if isinstance(self.options.engine, EngineFactory):
            self.options.engine.close()


class Residents:
    """Holds every ``ResidentBuckets`` of this process: one per job, and per input topic of a job with many.

    The one global of the materializer: Spark keeps Python worker processes between tasks but hands them only the task, and
    a producer and a map for each task would cost 60-80 ms. One run of a job at a time: of another run, the former is
    closed.
    """

    def __init__(self) -> None:
        self._by_job: OrderedDict[str, ResidentBuckets] = OrderedDict()

    def get(self, options: BucketOptions) -> ResidentBuckets:
        """The resident of this run; the one that was not used for longest is closed if there are too many."""
        current = self._by_job.get(options.job)
        if current is not None and (
            current.options.owner != options.owner
            or current.options.changelog_id != options.changelog_id
            or current.options.output_id != options.output_id
        ):
            self._by_job.pop(options.job).close()
            current = None
        if current is None:
            while len(self._by_job) >= _RESIDENT_JOBS:
                self._by_job.popitem(last=False)[1].close()
            current = self._by_job[options.job] = ResidentBuckets(options)
        self._by_job.move_to_end(options.job)
        return current

    def discard(self, job: str) -> None:
        """Close the resident of a job, if there is one."""
        resident = self._by_job.pop(job, None)
        if resident is not None:
            resident.close()

    def close(self) -> None:
        """Close what is open."""
        for job in list(self._by_job):
            self.discard(job)


RESIDENTS: Final = Residents()


# Tasks call these: a task that names ``RESIDENTS`` itself would be sent to the worker with a copy of it.


def get_resident(options: BucketOptions) -> ResidentBuckets:
    """See ``Residents.get``, of this process."""
    return RESIDENTS.get(options)


def discard_resident(job: str) -> None:
    """See ``Residents.discard``, of this process."""
    RESIDENTS.discard(job)


def run_guarded(
    options: BucketOptions,
    number: int,
    records: Iterable[InputRecord],
    span: PassRange,
    *,
    now_s: int | None = None,
    residents: Residents = RESIDENTS,
) -> Result:
    """``Bucket.run`` with our errors as a result, as the driver has to see their class and not a stack trace of Spark's."""
    try:
        return residents.get(options).bucket(number).run(records, span, now_s=now_s)
    except (Retriable, Fatal, Skippable) as error:
        return Result(number, error=type(error).__name__, text=str(error))
