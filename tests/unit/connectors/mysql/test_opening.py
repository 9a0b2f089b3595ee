"""Where a run begins whose saved position is not in the binlog any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from connectors.mysql.config.settings import CONFIG, connection_settings, stream_settings
from connectors.mysql.model import MYSQL, BinlogPosition, Shard
from connectors.mysql.position import start
from connectors.mysql.position.cursor import BinlogCursor
from connectors.mysql.run import opening
from connectors.mysql.run.opening import OpenedSource, RunSource
from connectors.mysql.schema.versions import list_tables
from connectors.mysql.source.connection import ServerInfo
from connectors.testing.contexts import LogCapture, make_logger

if TYPE_CHECKING:
    import pytest

    from connectors.api import Position
    from connectors.mysql.source.server import SourceServer

INFO = ServerInfo(flavor=MYSQL, version=(8, 4, 0), version_text="8.4.0", server_id=1, address="db.example.com:3306")
NOW = BinlogPosition(file="b.000090", pos=500)
BOOK = '[[7,"fingerprint",1,"b.000002",4,"","",[["id","int",false,true]]]]'


class Server:
    """A server that has only its newest binlog file."""

    async def info(self) -> ServerInfo:
        return INFO

    async def stay(self, address: str) -> None:
        del address

    async def logs(self) -> list[tuple[str, int]]:
        return [(NOW.file, NOW.pos)]

    async def current_position(self, info: ServerInfo) -> BinlogPosition:
        del info
        return NOW


class Client:
    """A connection that reads its binlog."""

    info = INFO
    address = INFO.address
    by_gtid = False

    def __init__(self, *_args: Any, **_options: Any) -> None:
        pass

    async def start(self) -> ServerInfo:
        return INFO


async def open_source(shard: Shard, saved: list[tuple[Position, Position]]) -> OpenedSource:
    properties = {
        "topic.prefix": "p",
        "database.hostname": "db.example.com",
        "database.user": "millrace",
        "snapshot.mode": "when_needed",
        "task.shard": f"{shard.index}/{shard.count}",
    }
    config = CONFIG.parse(properties)
    log = make_logger("opening", LogCapture())
    source = RunSource(connection_settings(config), stream_settings(config), log)
    source.server = cast("SourceServer", Server())
    return await source.open(saved)


async def test_after_a_purge_the_new_positions_count_and_not_those_of_an_earlier_number_of_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "BinlogClient", Client)
    saved: dict[str, tuple[Position, Position]] = {}
    # Two tasks, then one, then two again.
    for shard, layout in ((Shard(), 2), (Shard(0, 2), 3), (Shard(1, 2), 3)):
        offset = {"file": f"b.00000{layout}", "pos": 4, start.LAYOUT: layout, start.SOURCE_SERVER: 1}
        saved[str(shard)] = (start.stream_partition("p", shard), offset)
    for shard in (Shard(0, 2), Shard(1, 2)):
        opened = await open_source(shard, list(saved.values()))
        assert opened.begin.position == NOW
        assert opened.begin.initial
        cursor = BinlogCursor(opened.begin.start, opened.begin.position, 1, None)
        saved[str(shard)] = (start.stream_partition("p", shard), cursor.now())
    for shard in (Shard(0, 2), Shard(1, 2)):
        restarted = start.start_of("p", shard, saved.values())
        assert restarted.position is not None
        assert (restarted.position.file, restarted.position.pos) == (NOW.file, NOW.pos)


async def test_after_a_purge_tables_keep_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BinlogClient", Client)
    saved: list[tuple[Position, Position]] = [
        ({"server": "p"}, {"file": "b.000002", "pos": 4, start.LAYOUT: 1, start.SOURCE_SERVER: 1}),
        ({"server": "p", "snapshot": "initial"}, {"state": "completed"}),
        ({"server": "p", "table": "shop.t"}, {"versions": BOOK}),
    ]
    opened = await open_source(Shard(), saved)
    assert [table["version"] for table in list_tables("p", opened.offsets)] == [7]
    assert [partition for partition, _ in opened.offsets] == [{"server": "p", "table": "shop.t"}]
