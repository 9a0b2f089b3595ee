"""A bucket that puts a bad record aside: what was due before the record is shown, and the pass continues behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from connectors.formats.partition_update import Cell, CellStamp, PartitionUpdate, UpdateRow
from spark_jobs.dead_letters import DeadLetters
from spark_jobs.materializer import bucket as bucket_module
from spark_jobs.materializer.bucket import Bucket
from spark_jobs.materializer.config import BucketOptions, MarkerOwner
from spark_jobs.materializer.engine.engines import make_engine
from spark_jobs.materializer.engine.model import MergeOptions
from spark_jobs.materializer.engine.resources import Resources
from spark_jobs.materializer.passes import PassRange, Result
from tests.support.materializer import WIDE, MemoryRegistry, Written, source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from spark_jobs.materializer.contract import InputRecord, OutputRecord

#: More rows than one call of the engine shows.
MANY: Final = 2_500


class Topics:
    """The changelog and the output of one bucket in memory: the parts of a changelog and of a writer that a bucket uses."""

    def __init__(self) -> None:
        self.token = "writer"
        self.open = False
        self.end = 0
        self.committed: list[OutputRecord] = []
        self.letters: list[list[tuple[str, bytes | None]]] = []
        self._pending: list[OutputRecord] = []
        self._pending_letters: list[list[tuple[str, bytes | None]]] = []

    def ends(self, partition: int) -> tuple[int, int]:
        """See ``Changelog``."""
        del partition
        return 0, self.end

    def group_metadata(self) -> None:
        """See ``Changelog``."""

    def begin(self) -> None:
        """See ``BucketWriter``."""
        self.open = True

    def outputs(self, records: Iterable[OutputRecord]) -> None:
        """See ``BucketWriter``."""
        self._pending += records

    def changes(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """See ``BucketWriter``."""

    def dead_letter(
        self, topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> None:
        """See ``BucketWriter``."""
        del topic, key, value
        self._pending_letters.append(headers)

    def commit(
        self, marker: bytes, position: int | None, group: Any, *, before_commit: Callable[[], None] = lambda: None
    ) -> int:
        """See ``BucketWriter``."""
        del marker, position, group
        before_commit()
        self.committed += self._pending
        self.letters += self._pending_letters
        self._pending, self._pending_letters, self.open = [], [], False
        self.end += 2
        return self.end - 2

    def abort(self) -> bool:
        """See ``BucketWriter``."""
        self._pending, self._pending_letters, self.open = [], [], False
        return True

    def close(self) -> None:
        """See ``BucketWriter``."""

    def table(self) -> dict[bytes, dict[str, Any]]:
        """The rows that the committed events fold to."""
        rows: dict[bytes, dict[str, Any]] = {}
        for key, value, _, _ in self.committed:
            if value is None:
                continue
            event = json.loads(value)
            assert event["before"] == rows.get(key)
            if event["after"] is None:
                del rows[key]
            else:
                rows[key] = event["after"]
        return rows


class Clock:
    """The time of engines, s since 1970."""

    def __init__(self) -> None:
        self.now_s = 100

    def __call__(self) -> int:
        """In ns."""
        return self.now_s * 1_000_000_000


def update(*rows: UpdateRow, at: float, **parts: Any) -> PartitionUpdate:
    return PartitionUpdate(source=source(), key=("a",), write_time=int(at * 1_000_000), rows=rows, **parts)


def static(value: int, ttl_s: int) -> UpdateRow:
    """The static row of a partition with a value that runs out ``ttl_s`` seconds after 100."""
    return UpdateRow((), None, None, (Cell("st", None, value, CellStamp(100_000_000, ttl_s, 100 + ttl_s)),))


def bad(at: float) -> PartitionUpdate:
    """A message with a row that can't be merged: the key of an element of a list is no UUID."""
    stamp = CellStamp(96_000_000)
    row = UpdateRow((50, 0), stamp, None, (Cell("lf", "no uuid", {"a": "x", "b c": b""}, stamp),))
    return update(row, at=at)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    """Return the topics of the bucket."""
    topics = Topics()
    monkeypatch.setattr(bucket_module, "BucketWriter", lambda *_: topics)
    return topics


def run(folder: Path, topics: Topics, clock: Clock, records: list[InputRecord], written: Written) -> Result:
    """A pass over a bucket with these records, by a bucket that tolerates bad ones."""
    options = MergeOptions(
        topic="out", name="job", input_encoding="json", output_encoding="json", input_schemas=(written.text,)
    )
    resources = Resources(options, MemoryRegistry())
    bucket_options = BucketOptions(
        job="job",
        owner=MarkerOwner(1, "run"),
        client={},
        group="group",
        input_topic="in",
        input_id="in-id",
        partitions=1,
        output_topic="out",
        output_id="out-id",
        changelog_topic="changelog",
        changelog_id="changelog-id",
        state_dir=str(folder),
        engine=lambda sequence: make_engine(options, sequence=sequence, resources=resources, clock=clock),
        dead_letters=DeadLetters("job", tolerant=True, topic="dead"),
    )
    changelog: Any = topics
    bucket = Bucket(bucket_options, 0, changelog)
    try:
        # Nothing is due for the bucket itself: only the record's partition lets time pass.
        span = PassRange(records[0].offset, records[-1].offset + 1, first=True)
        return bucket.run(records, span, now_s=0)
    finally:
        bucket.close()


@pytest.mark.parametrize("rows", [3, MANY])
def test_what_runs_out_before_a_bad_record_is_shown_also_where_the_record_is_put_aside(
    rows: int, topics: Topics, tmp_path: Path
) -> None:
    written, clock = Written(WIDE), Clock()
    living = [UpdateRow((x, 0), CellStamp(100_000_000)) for x in range(rows)]
    run(tmp_path, topics, clock, [written.record(update(*living, static=static(5, 10), at=100), 0)], written)
    assert [row["st"] for row in topics.table().values()] == [5] * rows
    clock.now_s = 200
    result = run(tmp_path, topics, clock, [written.record(bad((1 << 62) / 1_000_000), 1)], written)
    assert (result.error, result.dead, len(topics.letters)) == ("", 1, 1)
    assert [row["st"] for row in topics.table().values()] == [None] * rows
