"""Only offsets of the acknowledged prefix of each source partition may be committed, whatever order things happen in."""

from __future__ import annotations

import weakref
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from worker.host.delivery.commits import CommitUnit, Ledger, position_key


def make_unit(moves: dict[str, int]) -> CommitUnit:
    return CommitUnit([(position_key({"p": name}), {"p": name}, {"n": offset}) for name, offset in moves.items()])


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, int]], list[int], set[int]]:
    """Units with growing offsets, the order in which they are acknowledged, and after which of those a commit takes place."""
    partitions = draw(st.lists(st.lists(st.sampled_from("abc"), max_size=3, unique=True), min_size=1, max_size=12))
    units = [dict.fromkeys(names, number + 1) for number, names in enumerate(partitions)]
    order = draw(st.permutations(range(len(units))))
    acknowledged = draw(st.integers(0, len(units)))
    commits = draw(st.sets(st.integers(0, len(units))))
    return units, order[:acknowledged], commits


@given(histories())
def test_commits_never_pass_what_is_not_acknowledged(history: tuple[list[dict[str, int]], list[int], set[int]]) -> None:
    moves, order, commits = history
    ledger = Ledger()
    units = [make_unit(item) for item in moves]
    for unit in units:
        ledger.add(unit)
    committed: dict[str, int] = {}
    done: set[int] = set()
    for step, number in enumerate(order):
        units[number].release()
        done.add(number)
        if step in commits:
            committed |= {partition["p"]: (offset or {})["n"] for partition, offset in ledger.take()}
            assert committed == {name: value for name in "abc" if (value := prefix(moves, done, name))}
    committed |= {partition["p"]: (offset or {})["n"] for partition, offset in ledger.take()}
    assert committed == {name: value for name in "abc" if (value := prefix(moves, done, name))}
    assert ledger.open == len(units) - len(done)
    assert not ledger.take()


def prefix(moves: list[dict[str, int]], done: set[int], name: str) -> int:
    """The model: the offset of the last unit before the first that isn't acknowledged, among those that move ``name``."""
    last = 0
    for number, item in enumerate(moves):
        if name in item:
            if number not in done:
                break
            last = item[name]
    return last


class Offset(dict[str, Any]):
    """A source offset that can be looked at from afar."""


def test_positions_without_records_do_not_pile_up_behind_a_record_that_waits() -> None:
    ledger = Ledger()
    waiting = make_unit({"a": 1})
    ledger.add(waiting)
    kept: list[weakref.ref[Offset]] = []
    for number in range(2, 1_000):
        # A poll of a source whose changes are filtered out, while Kafka does not answer.
        offset = Offset(n=number)
        kept.append(weakref.ref(offset))
        unit = CommitUnit([(position_key({"p": "a"}), {"p": "a"}, offset)])
        ledger.add(unit)
        unit.release()
        del unit, offset
    assert sum(offset() is not None for offset in kept) == 1
    assert ledger.take() == []
    waiting.release()
    assert ledger.take() == [({"p": "a"}, {"n": 999})]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_units_that_come_while_others_wait_pass_none_of_them(steps: list[tuple[int, bool]]) -> None:
    ledger = Ledger()
    units: list[CommitUnit] = []
    done: set[int] = set()

    def release(number: int) -> None:
        units[number].release()
        done.add(number)

    committed = 0
    for waiting, has_records in steps:
        units.append(make_unit({"a": len(units) + 1}))
        ledger.add(units[-1])
        if not has_records:
            release(len(units) - 1)
        left = [number for number in range(len(units)) if number not in done]
        if waiting < len(left):
            release(left[waiting])
        offsets = ledger.take()
        committed = (offsets[0][1] or {})["n"] if offsets else committed
        assert committed == next((number for number in range(len(units)) if number not in done), len(units))


def test_a_unit_waits_for_all_its_holders() -> None:
    ledger = Ledger()
    unit = make_unit({"a": 5})
    ledger.add(unit)
    unit.holders += 2
    unit.release()
    unit.release()
    assert ledger.take() == []
    unit.release()
    assert ledger.take() == [({"p": "a"}, {"n": 5})]
    assert ledger.take() == []


def test_a_failed_commit_is_taken_again_unless_newer_offsets_are_ready() -> None:
    ledger = Ledger()
    for offset in (1, 2):
        unit = make_unit({"a": offset, **({"b": 7} if offset == 1 else {})})
        ledger.add(unit)
        unit.release()
        if offset == 1:
            offsets = ledger.take()
            ledger.give_back(offsets)
    assert sorted(map(str, ledger.take())) == sorted(map(str, [({"p": "a"}, {"n": 2}), ({"p": "b"}, {"n": 7})]))


def test_acknowledgements_are_reported() -> None:
    acknowledged: list[Any] = []
    ledger = Ledger(acknowledged.append)
    unit = make_unit({})
    ledger.add(unit)
    unit.release()
    assert acknowledged == [unit]


@given(
    st.dictionaries(
        st.text(max_size=3), st.one_of(st.text(max_size=3), st.integers(), st.none(), st.booleans()), max_size=4
    )
)
def test_equal_partitions_have_equal_keys(partition: dict[str, Any]) -> None:
    turned = dict(reversed(list(partition.items())))
    assert position_key(partition) == position_key(turned)
    assert hash(position_key(partition)) == hash(position_key(turned))
    assert position_key({**partition, "other": 1}) != position_key(partition) or partition.get("other") == 1
