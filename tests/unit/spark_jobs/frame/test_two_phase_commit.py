"""The decisions of two-phase commits."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.kafka.decisions import Decision
from spark_jobs.two_phase_commit import Transaction, is_decided, is_written

TRANSACTION = Transaction("0123456789ab", 7, "89abcdef")
DECISION = Decision(7, "89abcdef", "c", (("t", 0, 0, 5),))


def test_only_the_decided_attempt_is_committed() -> None:
    assert is_decided(DECISION, TRANSACTION)
    assert not is_decided(None, TRANSACTION)
    assert not is_decided(DECISION, replace(TRANSACTION, attempt="00000000"))
    assert not is_decided(DECISION, replace(TRANSACTION, batch=8))


def test_a_batch_is_written_if_number_offsets_and_checkpoint_are_those_of_the_decision() -> None:
    assert is_written(DECISION, replace(DECISION, attempt="another"))
    assert not is_written(None, DECISION)
    for other in (replace(DECISION, batch=8), replace(DECISION, checkpoint="d"), replace(DECISION, ranges=())):
        assert not is_written(DECISION, other)


@given(st.integers(0, 2**63 - 1), st.from_regex(r"\A[0-9a-f]{8}\Z"))
def test_names_are_read_back_and_short_enough_for_every_database(batch: int, attempt: str) -> None:
    transaction = Transaction("0123456789ab", batch, attempt)
    branch = f"{transaction.name}-1-01234567"
    assert Transaction.parse(branch) == transaction
    assert len(branch) <= 64


def test_names_of_others_and_records() -> None:
    assert Transaction.parse("theirs-0123456789ab-1-89abcdef") is None
    assert Decision.parse(json.dumps(asdict(DECISION)).encode()) == DECISION


@given(st.lists(st.sampled_from(["written 0", "written 1", "decided", "committed 0", ""]), max_size=10))
def test_both_systems_have_every_batch_once_however_often_the_job_is_killed(deaths: list[str]) -> None:
    """A model: ``deaths`` says after which step of each run the job is killed."""
    prepared: list[dict[Transaction, int]] = [{}, {}]
    rows: list[list[int]] = [[], []]
    decision: Decision | None = None
    left, batch, runs = list(deaths), 0, 0

    def finish(transaction: Transaction, system: int, *, commit: bool) -> None:
        value = prepared[system].pop(transaction, None)
        if commit and value is not None:
            rows[system].append(value)

    while batch < 3:
        death, runs = (left.pop(0) if left else ""), runs + 1
        for transaction in {*prepared[0], *prepared[1]}:
            for system in (0, 1):
                finish(transaction, system, commit=is_decided(decision, transaction))
        transaction = Transaction("0123456789ab", batch, f"{runs:08x}")
        new = Decision(batch, transaction.attempt, "c", (("t", 0, batch, batch + 1),))
        if is_written(decision, new):
            batch += 1
            continue
        for system in (0, 1):
            prepared[system][transaction] = batch
            if death == f"written {system}":
                break
        if death.startswith("written"):
            continue
        decision = new
        if death == "decided":
            continue
        finish(transaction, 0, commit=True)
        if death == "committed 0":
            continue
        finish(transaction, 1, commit=True)
        batch += 1
    assert rows == [[0, 1, 2], [0, 1, 2]]
