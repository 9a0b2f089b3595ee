"""Random histories of a table: what its writers did, what Scylla logged, what the table holds in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from connectors.formats import timeuuid
from connectors.scylla.model import (
    INSERT,
    PARTITION_DELETE,
    POSTIMAGE,
    PREIMAGE,
    RANGE_END_EXCLUSIVE,
    RANGE_END_INCLUSIVE,
    RANGE_START_EXCLUSIVE,
    RANGE_START_INCLUSIVE,
    ROW_DELETE,
    UPDATE,
    StreamRun,
)
from tests.unit.connectors.scylla.events_forms.model import (
    CLUSTERING,
    OFFSET,
    PARTITION,
    START_US,
    VERSION,
    TableModel,
    log_row,
)

if TYPE_CHECKING:
    from connectors.scylla.model import LogRow

KEYS = [(1, "a"), (1, ""), (-5, "ä")]
_strings = st.text('abé\\"\u2028', max_size=3)
_ints = st.integers(-3, 3)
_words = st.sampled_from(["k", "l", "m"])
_udt = st.dictionaries(st.sampled_from(["street"]), _strings, max_size=1).flatmap(
    lambda first: st.dictionaries(st.just("zip code"), _ints, max_size=1).map(lambda second: first | second)
)


def _collection(
    whole: st.SearchStrategy[Any], added: st.SearchStrategy[Any], paths: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.just("set"), whole),
        st.tuples(st.just("add"), added),
        st.tuples(st.just("remove"), paths),
        st.just(("null",)),
    )


def _simple(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.tuples(st.just("set"), values), st.just(("null",)))


_REGULAR = {
    "v": _simple(_strings),
    "n": _simple(st.integers(-(1 << 63), (1 << 63) - 1)),
    "big": _simple(st.binary(max_size=3)),
    "a b": _simple(st.sampled_from([0.0, -1.5, 1e300, float("inf")])),
    "m": _collection(
        st.dictionaries(_words, _ints, max_size=2),
        st.dictionaries(_words, _ints, min_size=1, max_size=2),
        st.lists(_words, min_size=1, max_size=2, unique=True),
    ),
    "l": _collection(
        st.lists(_ints, max_size=2),
        st.lists(_ints, min_size=1, max_size=2),
        st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True),
    ),
    "s": _collection(
        st.sets(_ints, max_size=2),
        st.sets(_ints, min_size=1, max_size=2),
        st.lists(_ints, min_size=1, max_size=2, unique=True),
    ),
    "u": _collection(
        _udt, _udt.filter(bool), st.lists(st.sampled_from(["street", "zip code"]), min_size=1, unique=True)
    ),
    "f": _simple(st.fixed_dictionaries({"street": _strings, "zip code": st.none() | _ints})),
}
_STATIC = {
    "st": _simple(_strings),
    "sm": _collection(
        st.sets(_strings, max_size=2),
        st.sets(_strings, min_size=1, max_size=2),
        st.lists(_strings, min_size=1, max_size=2, unique=True),
    ),
}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[LogRow]], TableModel]:
    """Changes in log order, each the rows with one ``cdc$time``, and the table after them."""
    model = TableModel()
    changes = []
    for index in range(draw(st.integers(1, 12))):
        micro = START_US + 10 * index
        key = draw(st.sampled_from(KEYS))
        rows = draw(_change(model, key, micro))
        if not rows:
            continue
        ends = draw(st.booleans())
        changes.append(
            [
                log_row(
                    VERSION,
                    timeuuid.make_uuid(micro, 0x8080_8080_8080_8080),
                    seq,
                    operation,
                    cells,
                    ttl=ttl,
                    end=True if ends and seq == len(rows) - 1 else None,
                )
                for seq, (operation, cells, ttl) in enumerate(rows)
            ]
        )
    return changes, model


@st.composite
def _change(
    draw: st.DrawFn, model: TableModel, key: tuple[Any, ...], micro: int
) -> list[tuple[int, dict[str, Any], int | None]]:
    names = {"p": key[0], "q": key[1]}
    target = draw(st.sampled_from(["rows", "rows", "rows", "static", "range", "partition"]))
    if target == "partition":
        model.delete_partition(key)
        return [(PARTITION_DELETE, names, None)]
    if target == "range":
        first, last = sorted(draw(st.tuples(*[st.integers(0, len(CLUSTERING) - 1)] * 2)))
        model.delete(key, *CLUSTERING[first : last + 1])
        start = draw(st.sampled_from(_starts(first)))
        end = draw(st.sampled_from(_ends(last)))
        return [
            (RANGE_START_INCLUSIVE if start[1] else RANGE_START_EXCLUSIVE, names | start[0], None),
            (RANGE_END_INCLUSIVE if end[1] else RANGE_END_EXCLUSIVE, names | end[0], None),
        ]
    ttl = st.none() | st.sampled_from([60, 3600])
    rows: list[tuple[int, dict[str, Any], int | None]] = []
    if target == "static":
        cells = model.write(key, None, draw(_changes(_STATIC)), micro, insert=False)
        rows.append((UPDATE, cells, draw(ttl)))
    else:
        for clustering in draw(st.lists(st.sampled_from(CLUSTERING), min_size=1, max_size=3, unique=True)):
            whole = names | {"x": clustering[0], "y": clustering[1]}
            if draw(st.booleans()):
                rows.append((PREIMAGE, whole | {"v": "an old image"}, None))
            operation = draw(st.sampled_from([INSERT, INSERT, UPDATE, UPDATE, ROW_DELETE]))
            if operation == ROW_DELETE:
                model.delete(key, clustering)
                rows.append((ROW_DELETE, whole, None))
            else:
                changes = draw(_changes(_REGULAR))
                if operation == INSERT:  # it overwrites: there are no single elements in it
                    changes = {name: change for name, change in changes.items() if change[0] in {"set", "null"}}
                rows.append(
                    (operation, model.write(key, clustering, changes, micro, insert=operation == INSERT), draw(ttl))
                )
            if draw(st.booleans()):
                rows.append((POSTIMAGE, whole | {"v": "a new image", "n": 99}, None))
    return rows


def _changes(columns: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=columns)


def _prefix(values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("x", "y"), values, strict=False))


def _starts(index: int) -> list[tuple[dict[str, Any], bool]]:
    """Every way to say that a range begins with ``CLUSTERING[index]``."""
    ways = [(_prefix(CLUSTERING[index]), True)]
    if index:
        ways.append((_prefix(CLUSTERING[index - 1]), False))
    else:
        ways.append(({}, True))
    if index % 3 == 0:
        ways.append((_prefix(CLUSTERING[index][:1]), True))
        if index:
            ways.append((_prefix(CLUSTERING[index - 1][:1]), False))
    return ways


def _ends(index: int) -> list[tuple[dict[str, Any], bool]]:
    """Every way to say that a range ends with ``CLUSTERING[index]``."""
    ways = [(_prefix(CLUSTERING[index]), True)]
    if index < len(CLUSTERING) - 1:
        ways.append((_prefix(CLUSTERING[index + 1]), False))
    else:
        ways.append(({}, True))
    if index % 3 == 2:
        ways.append((_prefix(CLUSTERING[index][:1]), True))
        if index < len(CLUSTERING) - 1:
            ways.append((_prefix(CLUSTERING[index + 1][:1]), False))
    return ways


_flushed: st.SearchStrategy[Any] = st.booleans()


@st.composite
def runs(draw: st.DrawFn, changes: list[list[LogRow]]) -> list[StreamRun]:
    """The rows in runs as a reader would cut them: anywhere, also inside a change."""
    rows = [row for change in changes for row in change]
    result = []
    while rows:
        length = draw(st.integers(1, len(rows)))
        result.append(
            StreamRun(PARTITION, OFFSET, rows[:length], last=length == len(rows), may_be_bad=draw(st.booleans()))
        )
        rows = rows[length:]
    if result and draw(_flushed):
        result[-1] = result[-1]._replace(last=False)
        result.append(StreamRun(PARTITION, OFFSET, [], last=True))
    return result
