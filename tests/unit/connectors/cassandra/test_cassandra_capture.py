"""The updates that count: a node with its log, a table whose cdc changes, and a task that dies and restarts at any time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connectors.cassandra.capture import SETTLED_MS, Capture, Captures
from connectors.cassandra.schema import saved
from connectors.cassandra.schema.catalog import id_bytes
from connectors.cql.mutations.definition import CqlColumn, make_definition
from connectors.cql.types import CqlType

TABLE_ID = "00000000-0000-1000-8000-000000000001"
KEY = id_bytes(TABLE_ID)
ON = make_definition("ks", "t", TABLE_ID, [CqlColumn("p", CqlType("int"), "partition_key", 0)], cdc=True)
OFF = make_definition("ks", "t", TABLE_ID, ON.columns)
CREATED_US = 1_000
NODE, SOURCE = "n1", saved.definition_partition("p", "n1", TABLE_ID)


class Update(NamedTuple):
    segment: int
    with_cdc: bool


class World:
    """A table's updates in a log, as the node writes them, and a task that reads them.

    A write that began while the table had cdc is written with it, also when it reaches the log later: ``begin`` and ``land``.
    The node of the log decides that by the schema that it knows (``node_cdc``): while it is down it writes nothing and learns
    nothing, and once it is up it writes by its old schema until it has learned the cluster's.
    """

    def __init__(self, *, cdc: bool = True) -> None:
        self.cdc = self.node_cdc = cdc
        self.altered_us = self.node_altered_us = CREATED_US
        self.up = True
        #: What the task knows of the nodes' versions of the schema.
        self.versions = (0, 0)
        self.now_ms = 1_000
        self.segment = 100
        self.log: list[Update] = []
        self.under_way: list[tuple[bool, int]] = []
        #: What Kafka has: the saved definition, and how many entries of the log are behind the saved position.
        self.offset: dict[str, Any] | None = None
        self.read = 0
        self.ignored: list[int] = []
        self.captures: Captures | None = None
        self.position = 0

    # The cluster.

    def begin(self) -> None:
        if self.up:
            self.under_way.append((self.node_cdc, self.now_ms))

    def land(self) -> None:
        while self.under_way:
            with_cdc, _ = self.under_way.pop()
            self.log.append(Update(self.segment, with_cdc))

    def write(self) -> None:
        if self.up:
            self.log.append(Update(self.segment, self.node_cdc))

    def alter(self) -> None:
        self.cdc = not self.cdc
        self.altered_us += 1
        if self.up and self.node_altered_us == self.altered_us - 1:
            self.learn()

    def down(self) -> None:
        self.land()  # writes in flight reach the log, or are lost
        self.up = False

    def learn(self) -> None:
        self.up = True
        self.node_cdc, self.node_altered_us = self.cdc, self.altered_us

    def back(self) -> None:
        self.up = True

    def roll(self) -> None:
        self.segment += 3  # beyond the one that was made ahead

    def wait(self) -> None:
        self.now_ms += SETTLED_MS // 2
        # No write takes as long as nodes have to agree.
        if self.under_way and self.now_ms - self.under_way[0][1] >= SETTLED_MS // 2:
            self.land()

    def settle(self) -> None:
        """The task runs for a while without any change."""
        for step in (self.start, self.wait, self.wait, self.look):
            step()

    # The task.

    def start(self) -> None:
        if self.captures is not None:
            return
        self.captures, self.position = Captures(), self.read
        self.versions = (0, 0)
        if self.offset is not None:
            self.captures.remember(KEY, saved.read_captures("p", NODE, [(SOURCE, self.offset)])[TABLE_ID])
        self.look()

    def look(self) -> None:
        if self.captures is not None:
            versions = (self.altered_us, self.node_altered_us)
            agreed = self.altered_us == self.node_altered_us
            if not agreed or versions != self.versions:
                self.captures.disturb(self.now_ms)
            self.versions = versions
            self.captures.observe(
                KEY,
                cdc=self.cdc,
                altered_us=self.altered_us,
                listed=True,
                created=self.altered_us == CREATED_US,
                now_ms=self.now_ms,
            )
            # The newest segment is made ahead of its use.
            if agreed:
                self.captures.end(self.captures.settled(self.now_ms), self.segment + 1)

    def save(self) -> None:
        if self.captures is not None:
            table = ON if self.captures.of(KEY).now else OFF
            self.offset = saved.definition_offset(table, self.now_ms, self.captures.of(KEY))
            self.read = self.position

    def take(self) -> None:
        if self.captures is not None and self.position < len(self.log):
            update = self.log[self.position]
            # A table that is known without cdc is asked for again before an update of it is passed over.
            if not self.captures.of(KEY).counts(update.segment):
                self.look()
            if not self.captures.of(KEY).counts(update.segment):
                self.ignored.append(self.position)
            self.position += 1

    def kill(self) -> None:
        self.captures = None


STEPS = (
    "begin",
    "land",
    "write",
    "alter",
    "roll",
    "wait",
    "settle",
    "start",
    "look",
    "save",
    "take",
    "kill",
    "down",
    "back",
    "learn",
)


@settings(max_examples=1_000, deadline=None)
@example(cdc=True, steps=["start", "begin", "alter", "look", "look", "save", "roll", "land"])  # lands late
@example(cdc=True, steps=["start", "alter", "settle", "alter", "roll", "write", "alter"])  # on and off, unseen
@example(cdc=False, steps=["start", "save", "kill", "alter", "write", "alter"])
@example(
    cdc=True, steps=["start", "down", "alter", "settle", "settle", "roll", "back", "write"]
)  # back with the old schema
@given(st.booleans(), st.lists(st.sampled_from(STEPS), min_size=5, max_size=30))
def test_nothing_that_was_written_with_cdc_is_ever_passed_over(cdc: bool, steps: list[str]) -> None:
    world = World(cdc=cdc)
    for step in steps:
        getattr(world, step)()
    world.land()
    world.start()
    while world.position < len(world.log):
        world.take()
    assert not [world.log[position] for position in world.ignored if world.log[position].with_cdc]


@given(st.lists(st.sampled_from(("save", "kill", "start", "look", "take")), max_size=30))
def test_what_is_written_later_without_cdc_is_passed_over_once_that_is_known(steps: list[str]) -> None:
    world = World()
    for step in (
        "write",
        "start",
        "save",
        "alter",
        "look",
        "wait",
        "wait",
        "look",
        "save",
        "roll",
        "roll",
        "write",
        *steps,
    ):
        getattr(world, step)()
    world.start()
    while world.position < len(world.log):
        world.take()
    assert set(world.ignored) == {1}


@given(st.lists(st.sampled_from(("wait", "look", "settle", "roll", "save", "alter_twice")), max_size=20))
def test_a_table_waits_for_its_last_segment_as_long_as_a_node_has_an_old_schema(steps: list[str]) -> None:
    world = World()
    for step in ("start", "down", "alter", "look"):
        getattr(world, step)()
    assert world.captures is not None
    began_ms = world.now_ms
    for step in steps:
        if step == "alter_twice":
            world.alter()
            world.alter()
        else:
            getattr(world, step)()
        assert world.captures.waiting(began_ms - 1) == []
        assert world.captures.waiting(began_ms) == [KEY], "nodes that disagree do not make it begin again"
        assert world.captures.of(KEY).counts(10**12)
    for step in ("back", "settle"):
        getattr(world, step)()
    assert world.captures.waiting(world.now_ms) == [KEY]
    for step in ("learn", "look", "settle"):
        getattr(world, step)()
    assert world.captures.waiting(world.now_ms) == []
    assert not world.captures.of(KEY).counts(10**12)


def test_a_table_that_gets_cdc_again_waits_no_more() -> None:
    world = World()
    for step in ("start", "alter", "look", "alter", "look"):
        getattr(world, step)()
    assert world.captures is not None
    assert world.captures.waiting(world.now_ms) == []


@pytest.mark.parametrize("listed", [True, False])
def test_a_table_that_never_had_cdc_is_passed_over(listed: bool) -> None:
    captures = Captures()

    def observe(altered_us: int, *, cdc: bool = False) -> bool:
        return captures.observe(KEY, cdc=cdc, altered_us=altered_us, listed=listed, created=altered_us == 1, now_ms=1)

    assert not observe(1)
    assert not observe(1)
    assert not captures.of(KEY).counts(5)
    assert captures.settled(10 * SETTLED_MS) == {}
    # Altered, maybe twice, between two observations: only a listed table is assumed to have had cdc.
    assert observe(3) is listed
    assert captures.of(KEY).counts(5) is listed
    assert observe(4, cdc=True)
    assert captures.of(KEY) == Capture(now=True, ever=True, altered_us=4, again_us=4 if listed else 0)


def test_a_last_segment_holds_until_the_next_alter() -> None:
    captures = Captures()
    captures.remember(KEY, Capture(ever=True, last_segment=7, altered_us=3))

    def observe(altered_us: int) -> bool:
        return captures.observe(KEY, cdc=False, altered_us=altered_us, listed=False, created=False, now_ms=1)

    assert not observe(3)
    assert not captures.of(KEY).counts(8)
    assert observe(5)
    assert captures.of(KEY).counts(8)
    assert captures.end(captures.settled(1 + SETTLED_MS), 9) == [KEY]
    assert captures.of(KEY) == Capture(ever=True, last_segment=9, altered_us=5)


def test_what_changes_while_the_directory_is_listed_gets_no_last_segment() -> None:
    captures = Captures()
    captures.remember(KEY, Capture(now=True, ever=True))
    for number, cdc in enumerate((False, True, False)):
        if number == 1:
            settled = captures.settled(SETTLED_MS)
        captures.observe(KEY, cdc=cdc, altered_us=number + 1, listed=True, created=False, now_ms=number * SETTLED_MS)
    assert settled
    assert captures.end(settled, 7) == []
    assert captures.of(KEY).counts(8)


def test_it_is_remembered_when_cdc_was_on_again() -> None:
    saved_capture: Capture | None = None

    def observe(altered_us: int, *, cdc: bool) -> Capture:
        nonlocal saved_capture
        # A task that starts again knows what was saved.
        captures = Captures()
        if saved_capture is not None:
            captures.remember(KEY, saved_capture)
        captures.observe(KEY, cdc=cdc, altered_us=altered_us, listed=False, created=False, now_ms=1)
        offset = saved.definition_offset(ON if cdc else OFF, 1, captures.of(KEY))
        saved_capture = saved.read_captures("p", NODE, [(SOURCE, offset)])[TABLE_ID]
        return saved_capture

    assert observe(10, cdc=False).again_us == 0
    assert observe(20, cdc=True).again_us == 0, "it never had cdc before"
    assert observe(30, cdc=True).again_us == 0, "another ALTER"
    assert observe(40, cdc=False).again_us == 0
    assert observe(50, cdc=True).again_us == 50
    assert observe(60, cdc=True).again_us == 50
    assert observe(70, cdc=False).again_us == 50
    assert observe(80, cdc=True).again_us == 80
