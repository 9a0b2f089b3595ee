"""The requirements on a connector, one function for one promise. Each gets a fresh source.

None of them asserts how long something takes; every wait has a deadline, so that a broken promise ends the test.
"""

# ruff: noqa: S101 - asserting is what a test kit does
from __future__ import annotations

import asyncio
import gc
import logging
import traceback
import tracemalloc
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, MillraceError
from connectors.testing.blocking import audited_sleep
from connectors.testing.contexts import LogCapture, SavedOffsets
from connectors.testing.driver import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from connectors.api import BadRecord, SourceConnector, SourceRecord
    from connectors.testing.harness import Harness

    Source = type[SourceConnector]

#: Records a check reads in order to start again after each of them.
_RECORDS: Final = 12
#: Bytes that a task may allocate for records that the runtime does not take.
_MEMORY: Final = 12 * 1024 * 1024
#: How long to give a task the chance to do what it must not do, seconds.
_GRACE: Final = 0.2


def by_sequence(records: Iterable[SourceRecord], harness: Harness) -> dict[str, list[str]]:
    """Identities in order, for each sequence of the source: between sequences there is no order."""
    result: dict[str, list[str]] = defaultdict(list)
    for record in records:
        result[harness.sequence(record)].append(harness.identity(record))
    return result


async def _read_history(run: Run, count: int, limit: float) -> list[tuple[SourceRecord, SavedOffsets]]:
    """At least ``count`` records, each with what would be saved had everything up to it been delivered, and nothing after."""
    history: list[tuple[SourceRecord, SavedOffsets]] = []
    saved = run.offsets.copy()
    while len(history) < count:
        result = await run.take(limit)
        assert result is not None, f"{len(history)} of {count} records came within {limit:g} s; log:\n{run.log.text()}"
        for record in result[1].records:
            saved.put(record.source_partition, record.source_offset)
            history.append((record, saved.copy()))
        for partition, offset in result[1].offsets:
            saved.put(partition, offset)
    return history


def _same_continuation(
    got: Sequence[SourceRecord], expected_records: Sequence[SourceRecord], harness: Harness, bound: int, where: str
) -> None:
    """Each sequence's records must continue as ``expected_records``, after at most ``bound`` repetitions in all."""
    repeated = 0
    expected = by_sequence(expected_records, harness)
    for partition, mine in by_sequence(got, harness).items():
        theirs = expected.get(partition, [])
        if not theirs:
            continue
        start = mine.index(theirs[0]) if theirs[0] in mine else 0
        repeated += start
        common = min(len(mine) - start, len(theirs))
        assert mine[start : start + common] == theirs[:common], (
            f"{where}: {partition} continued with {mine}, not with {theirs}"
        )
    assert repeated <= bound, f"{where}: {repeated} records came before the ones that had to; allowed are {bound}"


async def reads_everything_in_order(connector: Source, harness: Harness) -> None:
    """Existing and later records are read, none of them twice; nothing is logged as an error."""
    records: list[SourceRecord] = []
    async with Run(connector, harness.config(), max_tasks=harness.max_tasks) as run:
        for _ in range(3):
            await harness.add(5)
            records += await run.read(5, harness.timeout)
    identities = list(map(harness.identity, records))
    assert len(set(identities)) == len(identities), f"records came twice: {identities}"
    errors = [line for level, line in run.log.lines if level >= logging.ERROR]
    assert not errors, f"errors are logged although nothing is wrong: {errors}"


async def resumes_from_every_offset(connector: Source, harness: Harness) -> None:
    """From the offset of any record the next one is the one that followed it."""
    await harness.add(_RECORDS)
    config = harness.config()
    async with Run(connector, config, max_tasks=harness.max_tasks) as run:
        history = await _read_history(run, _RECORDS, harness.timeout)
    log = [record for record, _ in history]
    for number, (_, saved) in enumerate(history[:_RECORDS]):
        await harness.add(1)
        following = log[number + 1 :]
        async with Run(connector, config, offsets=saved.copy(), max_tasks=harness.max_tasks) as run:
            got = await run.read(len(following) + 1, harness.timeout)
        _same_continuation(got, following, harness, harness.duplicate_bound, f"resumed after record {number}")
        known_identities = set(map(harness.identity, log))
        log += [record for record in got if harness.identity(record) not in known_identities]
        assert len(log) > len(following) + number + 1, (
            f"resumed after record {number}: the record written then did not come"
        )


async def a_crash_repeats_only_what_was_not_committed(connector: Source, harness: Harness) -> None:
    """Records that were produced, but whose offsets were not, come again: they, and no others."""
    await harness.add(_RECORDS)
    config = harness.config()
    async with Run(connector, config, max_tasks=harness.max_tasks) as run:
        history = await _read_history(run, _RECORDS, harness.timeout)
        await run.take(0)  # more may be under way when it ends
    committed = _RECORDS // 3
    produced = [record for record, _ in history]
    saved = history[committed - 1][1].copy()
    await harness.add(1)
    async with Run(connector, config, offsets=saved, max_tasks=harness.max_tasks) as run:
        repeated = await run.read(len(produced) - committed + 1, harness.timeout)
        uncommitted = set(map(harness.identity, produced[committed:]))
        # Of several sequences, the new records of one may come before the old ones of another.
        while lost := uncommitted - set(map(harness.identity, repeated)):
            try:
                repeated += await run.read(1, harness.timeout)
            except AssertionError as error:
                raise AssertionError(f"lost: {lost}") from error
    twice = set(map(harness.identity, produced)) & set(map(harness.identity, repeated))
    assert len(twice - uncommitted) <= harness.duplicate_bound, f"came again although committed: {twice - uncommitted}"
    _same_continuation(repeated, produced[committed:], harness, harness.duplicate_bound, "after the crash")


async def stops_and_goes_on_after_any_batch(connector: Source, harness: Harness) -> None:
    """Pause, stop and resume between two batches: nothing is lost and nothing comes twice."""
    config = harness.config()
    offsets = SavedOffsets()
    identities: list[str] = []
    for _ in range(4):
        await harness.add(3)
        async with Run(connector, config, offsets=offsets, max_tasks=harness.max_tasks) as run:
            identities += map(harness.identity, await run.read(1, harness.timeout))
    record_count = 12
    while len(identities) < record_count:
        async with Run(connector, config, offsets=offsets, max_tasks=harness.max_tasks) as run:
            identities += map(harness.identity, await run.read(1, harness.timeout))
    repeated = len(identities) - len(set(identities))
    assert repeated <= 4 * harness.duplicate_bound, f"{repeated} records came twice: {identities}"
    await harness.add(1)
    async with Run(connector, config, offsets=offsets, max_tasks=harness.max_tasks) as run:
        (first, *_) = map(harness.identity, await run.read(1, harness.timeout))
    assert first not in identities or harness.duplicate_bound, f"{first} came again"


async def holds_little_while_nobody_reads(connector: Source, harness: Harness) -> None:
    """A task that is not asked for the next batch waits, and does not fill the memory with what it could give."""
    await harness.add(harness.flood)
    async with Run(connector, harness.config(), max_tasks=harness.max_tasks) as run:
        gc.collect()
        tracemalloc.start()
        try:
            record_count = len(await run.read(1, harness.timeout))
            await asyncio.sleep(_GRACE)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes <= _MEMORY, f"{peak_bytes} bytes are held after one batch was taken; at most {_MEMORY} may be"
        await run.read(harness.flood - record_count, harness.timeout * 2)


async def reports_bad_input(connector: Source, harness: Harness) -> None:
    """Undecodable input is a bad record with its position; the records around it come, and a restart passes it."""
    config = harness.config()
    records: list[SourceRecord] = []
    bad: list[BadRecord] = []
    await harness.add(3)
    await harness.poison()
    await harness.add(3)
    await harness.poison()  # with nothing after it that would move the position over it
    async with Run(connector, config, max_tasks=harness.max_tasks) as run:
        while len(records) < 6 or len(bad) < 2:
            result = await run.take(harness.timeout)
            assert result is not None, (
                f"{len(records)} of 6 records and {len(bad)} of 2 bad ones came; log:\n{run.log.text()}"
            )
            records += result[1].records
            bad += result[1].bad
    offsets = run.offsets
    bad_identities = set(map(harness.identity_of_bad, bad))
    await harness.add(1)
    async with Run(connector, config, offsets=offsets, max_tasks=harness.max_tasks) as run:
        got: list[SourceRecord] = []
        while not got:
            result = await run.take(harness.timeout)
            assert result is not None, "nothing came after the bad record"
            got += result[1].records
            repeated_bad = [item for item in result[1].bad if harness.identity_of_bad(item) in bad_identities]
            assert not repeated_bad, f"the bad record came again after a restart: {repeated_bad}"
    assert not set(map(harness.identity, got)) & set(map(harness.identity, records)) or harness.duplicate_bound


async def survives_a_schema_change(connector: Source, harness: Harness) -> None:
    """Records before and after a change of the source's schema have their own schemas."""
    async with Run(connector, harness.config(), max_tasks=harness.max_tasks) as run:
        await harness.add(3)
        before = await run.read(3, harness.timeout)
        await harness.change_schema()
        await harness.add(3)
        after = await run.read(3, harness.timeout)
    assert after[-1].value_schema is None or after[-1].value_schema != before[0].value_schema, (
        "the schema is still the old one"
    )


async def survives_an_outage_of_its_source(connector: Source, harness: Harness) -> None:
    """A task does not fail while its source is unavailable, and does not report bad records."""
    async with Run(connector, harness.config(), max_tasks=harness.max_tasks) as run:
        await harness.add(3)
        identities = list(map(harness.identity, await run.read(3, harness.timeout)))
        async with harness.outage():
            result = await run.take(_GRACE)
            assert result is None or not result[1].bad, f"an outage is reported as bad records: {result}"
        await harness.add(3)
        after = await run.read(3, harness.timeout)
    assert not set(identities) & set(map(harness.identity, after)) or harness.duplicate_bound, (
        "records came again after the outage"
    )


async def checks_altered_offsets(connector: Source, harness: Harness) -> None:
    """Its own offsets are accepted, and their deletion; nonsense is refused; without offsets it starts over."""
    await harness.add(5)
    raw = harness.config()
    async with Run(connector, raw, max_tasks=harness.max_tasks) as run:
        first = await run.read(5, harness.timeout)
    config = connector.config_def.parse(raw)
    own_offsets = run.offsets.items()
    assert own_offsets, "nothing was saved for five records"
    checked = await connector.alter_offsets(config, list(own_offsets))
    await connector.alter_offsets(config, [(partition, None) for partition, _ in own_offsets])
    assert own_offsets == run.offsets.items(), "alter_offsets changed what it was to check"
    if checked:
        for partition, offset in (
            (own_offsets[0][0], {"no-such-field": "x"}),
            ({"no-such-field": "x"}, own_offsets[0][1]),
        ):
            try:
                await connector.alter_offsets(config, [(partition, offset)])
            except ConfigInvalid:
                continue
            raise AssertionError(f"alter_offsets accepts {partition!r}: {offset!r}, which no task can resume from")
    if harness.replayable:
        async with Run(connector, raw, max_tasks=harness.max_tasks) as run:
            reread = await run.read(5, harness.timeout)
        _same_continuation(reread, first, harness, 0, "started over after a reset")


async def keeps_secrets(connector: Source, harness: Harness) -> None:
    """Values of secret options are in no log line, no error and no representation."""
    passwords = [name for name, key in connector.config_def.keys.items() if key.secret]
    secrets = [
        value
        for name, value in {**harness.config(), **harness.secrets()}.items()
        if name in passwords or name in harness.secrets()
    ]
    if passwords:
        assert secrets, f"the harness's configuration gives none of the secret options {', '.join(passwords)}"
    if not secrets:
        return
    capture = LogCapture()
    await harness.add(3)
    async with Run(connector, harness.config(), max_tasks=harness.max_tasks, capture=capture) as run:
        await run.read(3, harness.timeout)
        outputs = [repr(run.context.config)]
    outputs += [capture.text(), await _provoke_failure(connector, harness, capture)]
    for secret in secrets:
        assert not any(secret in output for output in outputs), (
            "a secret value is shown in a log line, an error or a representation"
        )


async def _provoke_failure(connector: Source, harness: Harness, capture: LogCapture) -> str:
    wrong = harness.wrong_config()
    problems: list[Any] = []
    try:
        config = connector.config_def.parse(wrong)
        problems = [complaint for complaint in await connector.validate(config) if not complaint.warning]
        if not problems:
            async with Run(connector, wrong, max_tasks=harness.max_tasks, capture=capture) as run:
                await run.take(harness.timeout)
    except (MillraceError, OSError) as error:
        return "".join(traceback.format_exception(error)) + capture.text()
    assert problems, "harness.wrong_config() works"
    return repr(problems) + capture.text()


async def ends_when_cancelled(connector: Source, harness: Harness) -> None:
    """A task ends before its first batch, while it waits, and with a batch just taken; and leaves no asyncio task behind."""
    before = asyncio.all_tasks()
    config = harness.config()
    async with Run(connector, config, max_tasks=harness.max_tasks):
        pass
    async with Run(connector, config, max_tasks=harness.max_tasks) as run:
        await run.take(0)
    async with Run(connector, config, max_tasks=harness.max_tasks) as run:
        await run.take(_GRACE)
    await harness.add(3)
    async with Run(connector, config, max_tasks=harness.max_tasks) as run:
        await run.read(1, harness.timeout)
    async with Run(connector, config, max_tasks=harness.max_tasks) as run:
        await run.read(3, harness.timeout)
        await run.take(_GRACE)
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() - before if not task.done()]
    assert not left, f"asyncio tasks are left behind: {left}"


async def never_blocks_the_event_loop(connector: Source, harness: Harness) -> None:
    """No call that waits for a disk, a name server, a process or a clock is made on the loop; waiting lets others run."""
    with audited_sleep():
        run = Run(connector, harness.config(), max_tasks=harness.max_tasks, watch=True)
        async with run:
            await _read_with_others(run, harness)
            connector.exactly_once_support(run.context.config)
            await connector.alter_offsets(run.context.config, run.offsets.items())
    assert not run.blocking, "\n".join(run.blocking)


async def _read_with_others(run: Run, harness: Harness) -> None:
    await run.take(_GRACE)

    async def other() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await harness.add(5)

    reading = asyncio.create_task(other())
    # Were the loop blocked until there is something to read, nothing would ever be written.
    await run.read(5, harness.timeout)
    await reading
    await harness.add(20)
    await run.read(20, harness.timeout)


async def splits_its_work(connector: Source, harness: Harness) -> None:
    """At most as many tasks as allowed, the same ones when asked again, and together they read everything once."""
    await harness.add(10)
    config = harness.config()
    for max_tasks in (1, 2, 7):
        async with Run(connector, config, max_tasks=max_tasks) as run:
            first = await run.connector.task_configs(max_tasks)
            assert first == await run.connector.task_configs(max_tasks), (
                "task_configs gives other tasks when it is asked again"
            )
            identities = list(map(harness.identity, await run.read(10, harness.timeout)))
            assert len(set(identities)) == len(identities), f"with {max_tasks} tasks records came twice: {identities}"


async def marks_transactions(connector: Source, harness: Harness) -> None:
    """With boundaries of its own a connector ends transactions, and a restart after one repeats nothing; else it sets none."""
    raw = harness.config()
    config = connector.config_def.parse(raw)
    able = connector.can_define_transaction_boundaries(config)
    await harness.add(_RECORDS)
    committed: list[SourceRecord] = []
    open_records: list[SourceRecord] = []
    offsets = SavedOffsets()
    async with Run(connector, raw, max_tasks=1, boundary="connector" if able else "") as run:
        while len(committed) + len(open_records) < _RECORDS:
            result = await run.take(harness.timeout)
            assert result is not None, "no more records came"
            batch = result[1]
            assert able or not batch.transaction, "Batch.transaction is set by a connector that says it can't"
            open_records += batch.records
            if batch.transaction == "commit":
                committed += open_records
                open_records = []
                offsets = run.offsets.copy()
            elif batch.transaction == "abort":
                open_records = []
    if able:
        assert committed, "no transaction was committed although the connector says it can define boundaries"
        await harness.add(1)
        async with Run(connector, raw, offsets=offsets, max_tasks=1, boundary="connector") as run:
            resumed_records = await run.read(1, harness.timeout)
        assert not set(map(harness.identity, resumed_records)) & set(map(harness.identity, committed)), (
            "committed records came again"
        )


async def says_what_it_guarantees(connector: Source, harness: Harness) -> None:
    """Exactly once is claimed only where a restart repeats nothing; a missing option is an error that names it."""
    config = connector.config_def.parse(harness.config())
    claimed = connector.exactly_once_support(config)
    assert isinstance(claimed, bool)
    assert not (claimed and harness.duplicate_bound), "exactly once is claimed, but the harness allows duplicates"
    for name, key in connector.config_def.keys.items():
        if not key.required:
            continue
        without = {
            option: value for option, value in harness.config().items() if option != name and option not in key.aliases
        }
        try:
            connector.config_def.parse(without)
        except ConfigInvalid as error:
            complaint = str(error)
        else:
            raise AssertionError(f"{name} is required, but a configuration without it is accepted")
        assert name in complaint, f"the error about the missing {name} does not name it: {complaint}"


#: The checks by name.
CHECKS: Final = {
    check.__name__: check
    for check in (
        reads_everything_in_order,
        resumes_from_every_offset,
        a_crash_repeats_only_what_was_not_committed,
        stops_and_goes_on_after_any_batch,
        holds_little_while_nobody_reads,
        reports_bad_input,
        survives_a_schema_change,
        survives_an_outage_of_its_source,
        checks_altered_offsets,
        keeps_secrets,
        ends_when_cancelled,
        never_blocks_the_event_loop,
        splits_its_work,
        marks_transactions,
        says_what_it_guarantees,
    )
}
