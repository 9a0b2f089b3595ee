"""Addresses, versions, what a server says about itself, and the driver's errors in our words."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
from aiomysql import connection as driver
from pymysql.err import InternalError, OperationalError, ProgrammingError

from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.mysql.model import ServerAddress
from connectors.mysql.source.connection import (
    connect_first,
    driver_password,
    explain_failure,
    info_of,
    log_end,
    parse_version,
    ssl_context,
    variables_sql,
)
from connectors.options import Password
from tests.support.settings import mysql_connection, mysql_tls


def test_several_servers_with_ports_of_their_own() -> None:
    addresses = mysql_connection(host="one, two:3310 ,[::1]:3311,fe80::2,", port=3309).addresses()
    assert addresses == (
        ServerAddress("one", 3309),
        ServerAddress("two", 3310),
        ServerAddress("::1", 3311),
        ServerAddress("fe80::2", 3309),
    )
    assert [str(address) for address in addresses] == ["one:3309", "two:3310", "[::1]:3311", "[fe80::2]:3309"]
    for bad in ("one:x", "one:0", "one:65536", " , "):
        with pytest.raises(ConfigInvalid, match=r"database\.hostname"):
            mysql_connection(host=bad).addresses()


def test_modes_of_tls() -> None:
    assert ssl_context(None) is None
    assert ssl_context(mysql_tls(mode="disabled")) is None
    expected = {"preferred": (ssl.CERT_NONE, False), "required": (ssl.CERT_NONE, False),
                "verify_ca": (ssl.CERT_REQUIRED, False), "verify_identity": (ssl.CERT_REQUIRED, True)}  # fmt: skip
    for mode, (verify, name) in expected.items():
        context = ssl_context(mysql_tls(mode=mode))
        assert context is not None
        assert (context.verify_mode, context.check_hostname) == (verify, name)
    with pytest.raises(ConfigInvalid, match="can't be read"):
        ssl_context(mysql_tls(mode="verify_ca", truststore="/nowhere.pem"))


@pytest.mark.parametrize(("text", "version"), [
    ("11.4.5-MariaDB-log", (11, 4, 5)), ("5.5.5-10.11.6-MariaDB-0+deb12u1", (10, 11, 6)), ("8.4.6", (8, 4, 6)),
    ("9.0-rc", (9, 0, 0)), ("5.5.5", (5, 5, 5)), ("new", (0, 0, 0)),
])  # fmt: skip
def test_versions(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


def test_what_servers_say_about_themselves() -> None:
    mysql = info_of([("version", "8.4.6"), ("server_id", "11"), ("server_uuid", "u-1"), ("gtid_mode", "ON"), ("log_bin", "ON"),
                     ("binlog_row_metadata", None)], address="a:1")  # fmt: skip
    assert (mysql.flavor, mysql.version, mysql.server_id, mysql.uuid, mysql.address) == (
        "mysql",
        (8, 4, 6),
        11,
        "u-1",
        "a:1",
    )
    assert mysql.has_gtids
    assert mysql.is_on("log_bin")
    assert not mysql.is_on("log_bin_compress")
    assert not info_of([("version", "8.4.6"), ("gtid_mode", "ON_PERMISSIVE")]).has_gtids
    maria = info_of([("version", "10.11.2"), ("version_comment", "MariaDB Server"), ("gtid_domain_id", "3")])
    assert (maria.flavor, maria.domain, maria.has_gtids) == ("mariadb", 3, True)
    assert "'gtid_mode'" in variables_sql()


@pytest.mark.parametrize(("error", "kind", "advice"), [
    (OperationalError(1045, "Access denied for user 'a'@'b'"), ConfigInvalid, "database.password"),
    (OperationalError(1130, "Host 'x' is not allowed to connect"), ConfigInvalid, "CREATE USER"),
    (OperationalError(3159, "Connections using insecure transport are prohibited"), ConfigInvalid, "database.ssl.mode"),
    (OperationalError(2026, "the server has no TLS"), ConfigInvalid, "database.ssl.mode"),
    (OperationalError(2059, "Authentication plugin 'x' not configured"), ConfigInvalid, "caching_sha2_password"),
    (OperationalError(1227, "Access denied; you need BINLOG MONITOR"), Fatal, "GRANT"),
    (OperationalError(2003, "Can't connect"), Retriable, "can be reached"),
    (OperationalError(2013, "Lost connection"), Retriable, "can be reached"),
    (OperationalError(1040, "Too many connections"), Retriable, "busy"),
    (InternalError(1205, "Lock wait timeout exceeded"), Retriable, "busy"),
    (ProgrammingError(1146, "Table 'a.b' doesn't exist"), Fatal, "1146: Table 'a.b' doesn't exist"),
    (TimeoutError(), Retriable, "in time"),
    (ConnectionResetError(104, "reset"), Retriable, "reset"),
    (ssl.SSLError("wrong version number"), Retriable, "tls_version"),
])  # fmt: skip
def test_errors_of_the_driver_in_our_words(error: Exception, kind: type[Exception], advice: str) -> None:
    failure = explain_failure(error, "running SELECT 1", address=ServerAddress("db", 3306), user="cdc")
    assert type(failure) is kind
    assert advice in str(failure)
    assert "db:3306" in str(failure)


def test_passwords_are_sent_as_utf8() -> None:
    assert driver_password("pä\u2603").encode("latin-1") == "pä\u2603".encode()
    assert mysql_connection(host="a", password=Password("x")).secret == "x"
    assert "x" not in repr(mysql_connection(host="a", password=Password("secret-x")))


async def test_a_cancellation_as_the_socket_opens_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    opening = driver._open_connection  # the step after which the driver may lose it

    async def cancelled_then(*args: Any) -> Any:
        opened = await opening(*args)
        connecting.cancel()
        return opened

    monkeypatch.setattr(driver, "_open_connection", cancelled_then)
    settings = mysql_connection(
        host="127.0.0.1", port=server.sockets[0].getsockname()[1], user="u", connect_timeout_s=60
    )
    connecting = asyncio.create_task(connect_first(settings))
    ended, _ = await asyncio.wait({connecting}, timeout=20)
    forgotten = not ended
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    server.close()
    assert not forgotten
    assert connecting.cancelled()


def test_the_end_of_a_binlog_file_does_not_count_the_header_of_an_encrypted_one() -> None:
    assert log_end(("binlog.000001", 1874, "Yes")) == 1362  # as MySQL 9.7 tells it, with its position at 1362
    assert log_end(("binlog.000001", 1874, "No")) == log_end(("binlog.000001", 1874)) == 1874
