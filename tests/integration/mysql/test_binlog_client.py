"""Reading binlogs of real servers: places, GTIDs, large and compressed events, checksums, faults, failover, TLS."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pymysql
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from compose.local.mariadb import MariaDb
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.mysql.model import MARIADB, BinlogPosition, ConnectionSettings
from connectors.mysql.source import binlog, connection, gtid, login
from connectors.mysql.source import binlog_events as parse
from connectors.mysql.source import event_types as types
from connectors.mysql.source.binlog import BinlogClient, DuplicateIdError, PurgedError
from connectors.options import Password
from tests.support.eventually import patience
from tests.support.settings import mysql_connection, mysql_tls
from worker.fetch.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

LOG = logging.getLogger(__name__)
LIMIT = 20.0


class Pair(NamedTuple):
    """A server with TLS, and its replica without."""

    main: MariaDb
    replica: MariaDb
    authority: Path


def _certificate(folder: Path) -> dict[str, str]:
    """A certificate for localhost that believes itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=9))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return {"skip-ssl": "0", "ssl-cert": str(folder / "cert.pem"), "ssl-key": str(folder / "key.pem")}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("binlogs")
    main = MariaDb(
        folder / "main", port=None, durable=False, settings={"gtid-strict-mode": "1", **_certificate(folder)}
    )
    replica = MariaDb(
        folder / "replica",
        port=None,
        durable=False,
        settings={"server-id": "2", "log-slave-updates": "", "gtid-strict-mode": "1"},
    )
    try:
        _ = main.service
    except Unavailable as reason:
        pytest.skip(str(reason))
    with main, replica:
        follow = (
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={main.port}, MASTER_USER='millrace', "
            "MASTER_PASSWORD='millrace', MASTER_USE_GTID=slave_pos, MASTER_SSL=0, MASTER_CONNECT_RETRY=1"
        )
        start_gtid = sql(main, "SELECT @@gtid_binlog_pos")[0][0]
        sql(replica, "RESET MASTER", follow, f"SET GLOBAL gtid_slave_pos = '{start_gtid}'", "START SLAVE")
        sql(main, "CREATE DATABASE client", "CREATE TABLE client.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT)")
        yield Pair(main, replica, folder / "cert.pem")


def sql(server: MariaDb, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement."""
    rows: list[tuple[Any, ...]] = []
    with (
        pymysql.connect(
            host="127.0.0.1",
            port=server.port or 0,
            user=server.user,
            password=server.password,
            autocommit=True,
            ssl_disabled=True,
        ) as link,
        link.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall())
    return rows


def settings(*servers: MariaDb, **changes: Any) -> ConnectionSettings:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    defaults = mysql_connection(host=hosts, user="millrace", password=Password("millrace"), heartbeat_s=0.3)
    return msgspec.structs.replace(defaults, **changes)


async def here(server: MariaDb) -> BinlogPosition:
    link = await connection.connect_first(settings(server))
    try:
        return await connection.current_place(link, await connection.server_info(link))
    finally:
        link.close()


@asynccontextmanager
async def reading(
    config: ConnectionSettings, position: BinlogPosition, *, use_gtid: bool = False, annotate: bool = False
) -> AsyncIterator[BinlogClient]:
    client = BinlogClient(config, position, use_gtid=use_gtid, log=LOG, annotate=annotate)
    try:
        async with patience(LIMIT):
            await client.start()
        yield client
    finally:
        await client.close()


async def read_until(client: BinlogClient, kind: int, times: int = 1) -> list[bytes]:
    """Events up to one of this type, heartbeats left out."""
    events: list[bytes] = []
    async with patience(LIMIT):
        while sum(event[4] == kind for event in events) < times:
            events += [event for event in await client.read() if event[4] != types.HEARTBEAT]
    return events


def kinds(events: list[bytes]) -> list[int]:
    return [event[4] for event in events]


def gtids(events: list[bytes]) -> list[str]:
    return [parse.read_gtid(event).text for event in events if event[4] == types.MARIADB_GTID]


async def test_events_from_a_place_on_and_their_positions(pair: Pair) -> None:
    position = await here(pair.main)
    many = ",".join(["(REPEAT('x', 500))"] * 100)
    sql(
        pair.main,
        f"INSERT INTO client.t (v) VALUES {many}",
        "UPDATE client.t SET v = 'y'",
        "FLUSH BINARY LOGS",
        "DELETE FROM client.t",
    )
    end = await here(pair.main)
    async with reading(settings(pair.main), position, annotate=True) as client:
        assert client.info is not None
        assert (client.info.flavor, client.info.server_id, client.by_gtid) == (MARIADB, 1, False)
        assert 5400 <= client.server_id <= 6400
        events = await read_until(client, types.XID, 3)
        rows = [parse.rows_header(event) for event in events if event[4] in types.ROWS]
        assert {header.columns for header in rows} == {2}
        assert [header.flags & 1 for header in rows].count(1) == 3
        file, at = "", 0
        last = max(index for index, kind in enumerate(kinds(events)) if kind == types.XID)
        for event in events[: last + 1]:
            header = parse.read_header(event)
            if header.type == types.ROTATE:
                file, at = parse.read_rotate(event)
                continue
            if header.flags & types.ARTIFICIAL or (header.type == types.FORMAT_DESCRIPTION and not header.next_pos):
                at = header.next_pos or at
                continue
            # MariaDB gives no position within transactions.
            assert header.next_pos in (0, at + header.size)
            at += header.size
        # A checkpoint, which MariaDB writes when it has time, may stand behind the last transaction.
        checkpoint = 27 + len(file)
        assert (file, end.pos - at) in {(end.file, 0), (end.file, checkpoint)}
        assert file != position.file
        assert client.received > 100 * 500


@pytest.mark.parametrize("use_gtid", [False, True])
async def test_a_beginning_between_two_transactions(pair: Pair, use_gtid: bool) -> None:
    sql(pair.main, "INSERT INTO client.t (v) VALUES ('one')")
    position = await here(pair.main)
    sql(pair.main, "INSERT INTO client.t (v) VALUES ('two')", "INSERT INTO client.t (v) VALUES ('three')")
    async with reading(settings(pair.main), position, use_gtid=use_gtid) as client:
        assert client.by_gtid is use_gtid
        events = await read_until(client, types.XID, 2)
        number = int(position.gtids.rpartition("-")[2])
        assert gtids(events) == [f"0-1-{number + 1}", f"0-1-{number + 2}"]
        reached = gtid.parse_gtids(MARIADB, position.gtids)
        for transaction_id in gtids(events):
            reached.add(transaction_id)
        assert reached.text() == (await here(pair.main)).gtids
        assert parse.read_rotate(events[0]).file == position.file


async def test_places_that_are_not_there(pair: Pair) -> None:
    first = sql(pair.main, "SHOW BINARY LOGS")[0][0]
    sql(pair.main, "FLUSH BINARY LOGS", "INSERT INTO client.t (v) VALUES ('purge')", "FLUSH BINARY LOGS")
    now = await here(pair.main)
    # An old file can't be purged while another test's reader is in it; the server notices its end at the next heartbeat.
    for _ in range(200):
        sql(pair.main, f"PURGE BINARY LOGS TO '{now.file}'")
        if sql(pair.main, "SHOW BINARY LOGS")[0][0] == now.file:
            break
        await asyncio.sleep(0.05)
    bad = [
        (BinlogPosition(file=first, pos=4), False),
        (BinlogPosition(file=now.file, pos=now.pos + 10_000), False),
        (BinlogPosition(file="", pos=4, gtids="0-1-1"), True),
        (BinlogPosition(file="", pos=4, gtids="0-77-99999999"), True),
    ]
    for position, use_gtid in bad:
        with pytest.raises(PurgedError, match=r"1236.*snapshot.mode=when_needed"):
            async with reading(settings(pair.main), position, use_gtid=use_gtid):
                pass
    with pytest.raises((Fatal, Retriable)):  # in the middle of an event
        async with reading(settings(pair.main), msgspec.structs.replace(now, pos=9)) as client:
            await read_until(client, types.XID)


async def test_a_killed_connection_and_a_silent_server_are_retriable(pair: Pair) -> None:
    position = await here(pair.main)
    async with reading(settings(pair.main), position) as client:
        sql(pair.main, f"KILL {client.thread}")
        with pytest.raises(Retriable, match=r"killed|closed|lost"):
            await read_until(client, types.XID)
        assert client.pending  # the error is not forgotten
        with pytest.raises(Retriable):
            await client.read()
    async with reading(settings(pair.main, silence_s=0.5), position) as client:
        await read_quiet(client)
        pair.main.pause()
        try:
            with pytest.raises(Retriable, match=r"said nothing for 0.9 s"):
                await read_until(client, types.STOP)
        finally:
            pair.main.resume()


async def read_quiet(client: BinlogClient) -> None:
    """Read until the server sends only heartbeats."""
    async with patience(LIMIT):
        while (await client.read())[-1][4] != types.HEARTBEAT:
            pass


async def test_waiting_can_be_cancelled_and_goes_on(pair: Pair) -> None:
    async with reading(settings(pair.main, heartbeat_s=60), await here(pair.main)) as client:
        while client.take():
            pass
        reading_on = asyncio.ensure_future(client.read())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="out of order"):
            await client.read()
        reading_on.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading_on
        sql(pair.main, "INSERT INTO client.t (v) VALUES ('later')")
        assert kinds(await read_until(client, types.XID)) == [
            types.MARIADB_GTID, types.TABLE_MAP, types.WRITE_ROWS_V1, types.XID]  # fmt: skip
        waiting = asyncio.ensure_future(client.wait())
        sql(pair.main, "INSERT INTO client.t (v) VALUES ('in the background')")
        async with patience(LIMIT):
            await waiting
        events = client.take()
        assert events
        # What is taken while a wait is under way doesn't get lost in it.
        waiting = asyncio.ensure_future(client.wait())
        sql(pair.main, "INSERT INTO client.t (v) VALUES ('taken')")
        async with patience(LIMIT):
            while kinds(events).count(types.XID) < 2:
                await asyncio.sleep(0)
                events += client.take()
            while not waiting.done():
                sql(pair.main, "INSERT INTO client.t (v) VALUES ('more')")
                await asyncio.sleep(0)
        assert kinds(events)[-4:] == [types.MARIADB_GTID, types.TABLE_MAP, types.WRITE_ROWS_V1, types.XID]
        while client.take():
            pass
        waiting = asyncio.ensure_future(client.wait())
        await asyncio.sleep(0)
    with pytest.raises(Retriable, match="closed"):
        await client.read()
    await waiting


async def test_readers_with_the_same_number_end_each_other(pair: Pair) -> None:
    position, same = await here(pair.main), settings(pair.main, server_id=1801)
    async with reading(same, position) as first, reading(same, position):
        with pytest.raises(DuplicateIdError, match=r"database.server.id"):
            await read_until(first, types.XID)


async def test_a_start_that_was_cancelled_ends_nobody_s_reading(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that starts again while its first attempt still logs in, in a thread, is not thrown out by that."""
    arrived, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    prepare, log_in = login._prepare, login.log_in

    def prepare_and_wait(*arguments: Any) -> None:
        prepare(*arguments)
        if not arrived.is_set():
            arrived.set()
            go_on.wait(LIMIT)

    def watched(*arguments: Any, **options: Any) -> Any:
        first = not arrived.is_set()
        try:
            return log_in(*arguments, **options)
        finally:
            if first:
                ended.set()

    monkeypatch.setattr(login, "_prepare", prepare_and_wait)
    monkeypatch.setattr(binlog, "log_in", watched)
    position, same = await here(pair.main), settings(pair.main, server_id=1802)
    attempt = BinlogClient(same, position, use_gtid=False, log=LOG)
    starting = asyncio.create_task(attempt.start())
    assert await asyncio.to_thread(arrived.wait, LIMIT)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    async with reading(same, position) as client:
        go_on.set()
        assert await asyncio.to_thread(ended.wait, LIMIT)
        for _ in range(20):
            sql(pair.main, "INSERT INTO client.t (v) VALUES ('one')")
            await read_until(client, types.XID)
    await attempt.close()


async def test_events_of_more_than_sixteen_megabytes(pair: Pair) -> None:
    position = await here(pair.main)
    sizes = [(1 << 24) - 100, 1 << 24, 33 << 20]
    for size in sizes:
        sql(pair.main, f"INSERT INTO client.t (v) VALUES (REPEAT('z', {size}))")
    async with reading(settings(pair.main), position) as client:
        events = await read_until(client, types.XID, len(sizes))
    inserts = [event for event in events if event[4] in types.WRITES]
    # Not all of that letter: a byte of the event's time may be one, too.
    assert [max(map(len, re.findall(b"z+", event))) for event in inserts] == sizes
    sql(pair.main, "SET sql_log_bin = 0", "TRUNCATE client.t")


async def test_compressed_events_are_the_plain_ones(pair: Pair) -> None:
    work = [f"CREATE OR REPLACE TABLE client.wide ({', '.join(f'c{number} INT' for number in range(300))})",
            "INSERT INTO client.t (id, v) VALUES (901, REPEAT('abc', 500)), (902, REPEAT('d', 99999))",
            "UPDATE client.t SET v = REPEAT('e', 700) WHERE id = 901",
            "DELETE FROM client.t WHERE id IN (901, 902)"]  # fmt: skip
    logged: list[list[bytes]] = []
    for compress in ("OFF", "ON"):
        sql(pair.main, f"SET GLOBAL log_bin_compress = {compress}")
        position = await here(pair.main)
        sql(pair.main, *work)
        sql(pair.main, "SET GLOBAL log_bin_compress = OFF")
        async with reading(settings(pair.main), position, annotate=True) as client:
            logged.append(await read_until(client, types.XID, 3))
    plain, compressed = logged
    assert {types.WRITE_ROWS_COMPRESSED_V1, types.UPDATE_ROWS_COMPRESSED_V1, types.DELETE_ROWS_COMPRESSED_V1,
            types.QUERY_COMPRESSED} <= set(kinds(compressed))  # fmt: skip
    assert not types.COMPRESSED & set(kinds(plain))
    uncompressed = [parse.uncompress_event(event) if event[4] in types.COMPRESSED else event for event in compressed]

    def shown(events: list[bytes]) -> list[object]:
        return [event[parse.rows_header(event).start:] if event[4] in types.ROWS
                else parse.read_query(event).statement if event[4] == types.QUERY
                else parse.rows_query(event) if event[4] == types.ANNOTATE_ROWS
                else event[4] for event in events]  # fmt: skip

    assert shown(uncompressed) == shown(plain)
    assert set(work) <= set(shown(plain))


async def test_files_with_and_without_checksums(pair: Pair) -> None:
    position = await here(pair.main)
    sql(
        pair.main,
        "SET GLOBAL binlog_checksum = NONE",
        "INSERT INTO client.t (v) VALUES ('bare')",
        "SET GLOBAL binlog_checksum = CRC32",
        "INSERT INTO client.t (v) VALUES ('checked')",
    )
    async with reading(settings(pair.main), position) as client:
        events = await read_until(client, types.XID, 2)
    rows = [event for event in events if event[4] in types.ROWS]
    assert [event[-4:] for event in rows] == [b"bare", b"cked"]
    assert [parse.read_header(event).size - len(event) for event in rows] == [0, 4]
    async with reading(settings(pair.main, verify_checksums=False), position) as client:
        assert [event for event in await read_until(client, types.XID, 2) if event[4] in types.ROWS] == rows


async def test_without_rights_it_is_said_which_lack(pair: Pair) -> None:
    sql(pair.main, "CREATE OR REPLACE USER poor IDENTIFIED BY 'poor'")
    poor = settings(pair.main, user="poor", password=Password("poor"))
    with pytest.raises(Fatal, match="REPLICATION SLAVE"):
        async with reading(poor, BinlogPosition(file="binlog.000001", pos=4)):
            pass
    wrong = settings(pair.main, password=Password("wrong"))
    with pytest.raises(ConfigInvalid, match=r"refuses the user 'millrace'.*database.password"):
        async with reading(wrong, BinlogPosition(file="binlog.000001", pos=4)):
            pass
    link = await connection.connect_first(poor)
    try:
        with pytest.raises(Fatal, match=r"lacks a privilege.*GRANT"):
            await connection.binary_logs(link)
    finally:
        link.close()


async def test_passwords_beyond_ascii_are_the_same_everywhere(pair: Pair) -> None:
    password = "pä\u2603"
    sql(
        pair.main,
        f"CREATE OR REPLACE USER snow IDENTIFIED BY '{password}'",
        "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO snow",
    )
    snow = settings(pair.main, user="snow", password=Password(password))
    link = await connection.connect_first(snow)
    position = await connection.current_place(link, await connection.server_info(link))
    link.close()
    async with reading(snow, position) as client:
        assert client.server_id


async def test_place_and_gtids_are_of_one_moment_while_others_write(pair: Pair) -> None:
    link = await connection.connect_first(settings(pair.main))
    info = await connection.server_info(link)
    done = asyncio.Event()

    def write() -> None:
        with (
            pymysql.connect(
                host="127.0.0.1",
                port=pair.main.port or 0,
                user="millrace",
                password="millrace",
                autocommit=True,
                ssl_disabled=True,
            ) as writer,
            writer.cursor() as cursor,
        ):
            while not done.is_set():
                cursor.execute("INSERT INTO client.t (v) VALUES ('busy')")

    writing = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        positions = [await connection.current_place(link, info) for _ in range(20)]
    finally:
        done.set()
        await writing
    for position in positions:
        rows = await connection.query_rows(link, "SELECT BINLOG_GTID_POS(%s, %s)", (position.file, position.pos))
        assert str(rows[0][0]) == position.gtids
    assert len({position.pos for position in positions}) > 1
    names = [name for name, _ in await connection.binary_logs(link)]
    assert names[-1] == positions[-1].file
    link.close()


async def test_tls_modes(pair: Pair) -> None:
    tls = settings(pair.main, host="localhost", port=pair.main.port)
    position = await here(pair.main)
    for mode in ("preferred", "required", "verify_ca", "verify_identity"):
        config = msgspec.structs.replace(tls, tls=mysql_tls(mode=mode, truststore=str(pair.authority)))
        link = await connection.connect_first(config)
        assert link.encrypted
        assert (await connection.query_rows(link, "SHOW STATUS LIKE 'Ssl_cipher'"))[0][1]
        link.close()
    sql(pair.main, "INSERT INTO client.t (v) VALUES (REPEAT('s', 3000000))")
    async with reading(config, position) as client:
        assert client.info is not None
        assert client.info.encrypted
        events = await read_until(client, types.XID)
        assert max(map(len, events)) > 3_000_000
    stranger = msgspec.structs.replace(tls, tls=mysql_tls(mode="verify_ca"))
    by_address = settings(pair.main, tls=mysql_tls(mode="verify_identity", truststore=str(pair.authority)))
    without = settings(pair.replica, tls=mysql_tls(mode="required"))
    refused = (
        (stranger, "not believed"),
        (by_address, "not believed"),
        (without, r"the server has no TLS|SSL is required"),
    )
    for config, message in refused:
        with pytest.raises(ConfigInvalid, match=message):
            await connection.connect_first(config)
        with pytest.raises(ConfigInvalid, match=message):
            async with reading(config, position):
                pass
    async with reading(settings(pair.replica, tls=mysql_tls()), await here(pair.replica)) as client:
        assert client.info is not None
        assert not client.info.encrypted


async def test_another_server_goes_on_where_the_first_one_ended(pair: Pair) -> None:
    """Last: it stops the main server."""
    both = settings(pair.main, pair.replica)
    position = await here(pair.main)
    sql(pair.main, "INSERT INTO client.t (v) VALUES ('before')")
    done = gtid.parse_gtids(MARIADB, position.gtids)
    async with reading(both, position, use_gtid=True) as client:
        assert str(client.address) == f"127.0.0.1:{pair.main.port}"
        for transaction_id in gtids(await read_until(client, types.XID)):
            done.add(transaction_id)
        last = sql(pair.main, "INSERT INTO client.t (v) VALUES ('unread')", "SELECT @@gtid_binlog_pos")[0][0]
        assert sql(pair.replica, f"SELECT MASTER_GTID_WAIT('{last}', {LIMIT})")[0][0] == 0
        pair.main.stop()
        with pytest.raises(Retriable):
            await read_until(client, types.STOP, 2)
    sql(pair.replica, "STOP SLAVE", "RESET SLAVE ALL", "INSERT INTO client.t (v) VALUES ('after')")
    with pytest.raises(Retriable, match="unavailable"):  # a position means nothing on the replica: it isn't tried
        async with reading(both, position):
            pass
    with pytest.raises(Retriable, match="unavailable"):  # the replica lacks it, but the main server may have it
        async with reading(both, msgspec.structs.replace(position, gtids="0-1-99999999"), use_gtid=True):
            pass
    async with reading(both, msgspec.structs.replace(position, gtids=done.text()), use_gtid=True) as client:
        assert str(client.address) == f"127.0.0.1:{pair.replica.port}"
        assert client.by_gtid
        events = await read_until(client, types.XID, 2)
    number = int(last.rpartition("-")[2])
    assert gtids(events) == [f"0-1-{number}", f"0-2-{number + 1}"]
    assert [b"unread" in event or b"after" in event for event in events if event[4] in types.ROWS] == [True, True]
