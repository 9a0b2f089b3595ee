"""The same writes captured by this connector and by Debezium for MariaDB: every record equal, schemas included.

Debezium's records are recordings (``recordings/README.md``). In the slow suite Debezium and this connector read the
same server, and the recordings are compared with Debezium's new records.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from compose.local.databases.server_pair import execute_sql
from compose.local.worker import MillraceWorker
from tests.integration.mysql import debezium_world as world
from tests.integration.mysql.debezium_compare import Deliberate, differences, heartbeats, listing, unexplained, unused
from tests.selection import scaled
from tests.support.eventually import eventually_async
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from compose.local.connect import JavaConnect
    from compose.local.mariadb import MariaDb

LIVE = scaled(quick=False, slow=True)

#: Where ours is another on purpose. One that is no longer met fails the test, so that the list stays true.
DELIBERATE = [
    Deliberate(
        "version",
        "the field is for the connector's own version, and this is another connector",
        r".*",
        r"value\.source\.version",
    ),
    Deliberate(
        "no statements for a snapshot",
        "structures come with the binlog: nobody has to be told them all",
        r"server",
        r"missing",
        phases=("snapshot",),
    ),
    Deliberate(
        "no statements about other tables",
        "statements about tables that the filters leave out stay with the source",
        r"server",
        r"missing",
        phases=("stream",),
    ),
    Deliberate(
        "structure as of reading",
        "tableChanges describes the table as it is when the statement is read, from "
        "information_schema: there is no history of statements to say how it was",
        r"server",
        r"value\.tableChanges.*|value\.source\.table",
        phases=("stream",),
    ),
    Deliberate(
        "statement as logged",
        "the text is what the binlog has",
        r"server",
        r"value\.ddl",
        phases=("stream",),
        when=lambda theirs, ours: theirs.startswith("DROP TABLE") and ours.startswith("DROP TABLE"),
    ),
    Deliberate(
        "a transaction's time",
        "Debezium gives a BEGIN the time of the event before it; ours is the transaction's own",
        r"server\.transaction",
        r"value\.ts_ms",
        ("default",),
        ("stream",),
    ),
    Deliberate(
        "position within a transaction",
        "MariaDB tells no positions of events within a transaction; Debezium "
        "then repeats the transaction's, ours goes on by their sizes so that those of one transaction differ",
        r"server(\.world\..*)?",
        r"value\.source\.pos",
        phases=("stream",),
        when=lambda theirs, ours: ours > theirs,
    ),
    Deliberate(
        "structures of the past",
        "defaults of a structure that has been changed again are unknown, see there",
        r"server\.world\.(evolving|fresh|fresh_too)",
        r"value_schema\..*\.default",
        phases=("stream",),
        when=lambda _theirs, ours: ours == "(absent)",
        chance=True,
    ),
    Deliberate(
        "declared lengths",
        "lengths are what information_schema declares, not what a statement happened to write",
        r"server\.world\.(evolving|renamed)",
        r"value_schema\..*\.__debezium\.source\.column\.length",
        ("iso",),
        ("stream",),
        chance=True,
    ),
    Deliberate(
        "comments",
        "include.schema.comments works as documented; Debezium for MariaDB turns it round",
        r"server\.world\.(made|evolving)",
        r"(key|value)_schema\..*\.(doc|parameters\.__debezium\.source\.column\.comment)",
    ),
    Deliberate(
        "doubles with two digits",
        "the snapshot's double is the stream's, not the text that the server rounds",
        r"server\.world\.numbers",
        r"value\.after\.db102",
        phases=("snapshot",),
        when=lambda theirs, ours: round(ours, 2) == theirs,
    ),
    Deliberate(
        "UUIDs of the stream",
        "Debezium shifts the bytes of a UUID in the stream; ours is what the server shows",
        r"server\.world\.texts",
        r"value\.(before|after)\.uu",
        phases=("stream",),
    ),
    Deliberate(
        "quotes in ENUMs",
        "Debezium's stream adds a backslash to a member with a comma",
        r"server\.world\.texts",
        r"value\.after\.e",
        phases=("stream",),
        when=lambda theirs, ours: theirs.replace("\\", "") == ours,
    ),
    Deliberate(
        "quotes in defaults",
        "Debezium leaves a quote in a default doubled, as SQL writes it",
        r"server\.world\.texts_required",
        r"value_schema\.(before|after)\.vc\.default",
        when=lambda theirs, ours: theirs.replace("''", "'") == ours,
    ),
    Deliberate(
        "TIMESTAMP(1) of a snapshot",
        "snapshot and stream write a time alike: with the column's digits",
        r"server\.world\.times",
        r"value\.after\.ts1",
        phases=("snapshot",),
    ),
    Deliberate(
        "zero TIMESTAMPs of a snapshot",
        "snapshot and stream say the same for a zero time: the stream's value",
        r"server\.world\.times(_required)?",
        r"value\.after\.ts[136]?",
        phases=("snapshot",),
        when=lambda _theirs, ours: str(ours).startswith("1970-01-01T00:00:00"),
    ),
    Deliberate(
        "nanoseconds beyond 64 bits",
        "Debezium's overflow into another time; there is no right one",
        r"server\.world\.times",
        r"value\.after\.dt[136]?",
        ("nano",),
        when=lambda _theirs, ours: ours is None,
    ),
]


class World(NamedTuple):
    """The server and the worker, which still run; what was captured by who ("ours", and "java" when it is live) and variant."""

    database: MariaDb
    worker: MillraceWorker
    captures: Mapping[tuple[str, str], world.Capture]


@pytest.fixture(scope="module")
def captured(
    bootstrap: str, tmp_path_factory: pytest.TempPathFactory, debezium: Callable[..., JavaConnect]
) -> Iterator[World]:
    database = world.server(tmp_path_factory.mktemp("world"))
    try:
        _ = database.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    properties = {"offset.flush.interval.ms": "500"}
    with (
        database,
        MillraceWorker(
            tmp_path_factory.mktemp("millrace"),
            bootstrap,
            group=f"world-{secrets.token_hex(4)}",
            port=None,
            processes=1,
            properties=properties,
        ) as ours,
    ):
        workers: dict[str, world.Worker] = {"ours": ours}
        if LIVE:
            workers["java"] = debezium(properties=properties)
        expected = {("ours", variant): world.load(variant).rows() for variant in world.VARIANTS}
        yield World(database, ours, asyncio.run(world.capture(bootstrap, workers, database, expected=expected)))


@pytest.fixture
def captures(captured: World) -> Mapping[tuple[str, str], world.Capture]:
    return captured.captures


@pytest.mark.parametrize("variant", list(world.VARIANTS))
def test_every_record_is_debeziums(captures: Mapping[tuple[str, str], world.Capture], variant: str) -> None:
    all_differences = differences(
        variant, captures.get(("java", variant)) or world.load(variant), captures["ours", variant]
    )
    wrong = unexplained(all_differences, DELIBERATE)
    assert not wrong, listing(wrong)


def test_every_deliberate_difference_is_met(captures: Mapping[tuple[str, str], world.Capture]) -> None:
    all_differences = [
        difference
        for variant in world.VARIANTS
        for difference in differences(variant, world.load(variant), captures["ours", variant])
    ]
    assert unused(all_differences, DELIBERATE) == []


def test_heartbeats_have_debeziums_shape(captures: Mapping[tuple[str, str], world.Capture]) -> None:
    theirs = heartbeats(world.load("default"))
    assert len(theirs) == 1
    assert heartbeats(captures["ours", "default"]) == theirs
    assert not heartbeats(captures["ours", "precise"])


@pytest.mark.slow
@pytest.mark.parametrize("variant", list(world.VARIANTS))
def test_the_recordings_are_what_debezium_says_now(
    captures: Mapping[tuple[str, str], world.Capture], variant: str
) -> None:
    # Its thread numbers are other ones: ours have connected before.
    all_differences = [
        difference
        for difference in differences(variant, world.load(variant), captures["java", variant])
        if difference.path != "value.source.thread"
    ]
    assert not all_differences, listing(all_differences)


@pytest.mark.parametrize("variant", ["default", "precise", "iso"])
async def test_ours_goes_on_from_debeziums_offset(captured: World, bootstrap: str, variant: str) -> None:
    """Positions are the same on every server of this world, so a recorded offset is one of this server too."""
    name, worker = captured.captures["ours", variant].name, captured.worker
    topic = f"{name}.{world.DATABASE}.empty_at_first"
    before = {topic_name: len(records) for topic_name, records in (await world.read_topics(bootstrap, [name])).items()}
    ((_, offset),) = world.load(variant).offsets
    await ask(worker, "DELETE", f"/connectors/{name}/offsets")
    await ask(
        worker, "PATCH", f"/connectors/{name}/offsets", {"offsets": [{"partition": {"server": name}, "offset": offset}]}
    )
    number = 2000 + list(world.VARIANTS).index(variant)
    await asyncio.to_thread(execute_sql, captured.database, f"INSERT INTO world.empty_at_first VALUES ({number}, 1)")
    await ask(worker, "PUT", f"/connectors/{name}/resume")

    async def read_new() -> dict[str, Any] | None:
        now = await world.read_topics(bootstrap, [name])
        new = {
            topic_name: records[before.get(topic_name, 0) :]
            for topic_name, records in now.items()
            if topic_name.startswith(f"{name}.{world.DATABASE}.")
        }
        return new if any(world.decoded(record.value)["after"]["id"] == number for record in new[topic]) else None

    new = await eventually_async(
        read_new, "the row comes", every=0.05, detail=lambda: worker.request("GET", f"/connectors/{name}/status")
    )
    await ask(worker, "PUT", f"/connectors/{name}/stop")
    # Rows that other cases of this test have written before are new to this connector too; nothing else is.
    ids = [world.decoded(record.value)["after"]["id"] for record in new.pop(topic)]
    assert ids == sorted(set(ids))
    assert ids[-1] == number
    assert all(row_id >= 2000 for row_id in ids)
    assert not any(new.values()), new


async def ask(worker: MillraceWorker, method: str, path: str, body: Any = None) -> None:
    status, answer = await asyncio.to_thread(worker.request, method, path, body)
    assert status < 400, answer


def test_a_changed_leaf_and_a_missing_record_are_found() -> None:
    there = world.load("default")
    assert differences("default", there, there) == []
    changed = copy.deepcopy(there)
    record = next(
        record for record in changed.records if record.topic == "server.world.customers" and record.phase == "stream"
    )
    record.value["after"]["credit"] = "AQ=="
    record.value_schema["fields"][0]["fields"][0]["type"] = "int64"
    all_differences = differences("default", there, changed)
    assert ("value.after.credit", "AA==", "AQ==") in [
        (difference.path, difference.theirs, difference.ours) for difference in all_differences
    ]
    assert ("value_schema.before.id.type", "int32", "int64") in [
        (difference.path, difference.theirs, difference.ours) for difference in all_differences
    ]
    changed.records.remove(changed.records[-1])
    assert any(difference.path == "missing" for difference in differences("default", there, changed))
