"""A task learns that Kafka has a batch: when all of it is acknowledged, and with exactly once when it is committed."""

from __future__ import annotations

from worker.host.delivery.commits import CommitUnit, Ledger


def test_a_unit_keeps_the_receipt_until_everything_of_it_is_released() -> None:
    done: list[object] = []
    ledger = Ledger(lambda unit: done.append(unit.receipt))
    first, second = CommitUnit(receipt="first"), CommitUnit(receipt="second")
    ledger.add(first)
    ledger.add(second)
    second.release()
    assert done == ["second"]
    first.release()
    assert done == ["second", "first"]
