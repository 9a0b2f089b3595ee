"""Tables whose structure changes while ``millrace verify`` compares them, and keys of any type, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.mysql.verify_world import ROWS, VerifyWorld
from worker.verify.command import build_verification
from worker.verify.messages import VerificationRequest
from worker.verify.rows import RowVerification

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


KEYS = (
    "VARCHAR(20) COLLATE utf8mb4_bin",
    "VARCHAR(20) COLLATE utf8mb4_general_ci",
    "VARCHAR(20) COLLATE utf8mb4_unicode_ci",
    "VARCHAR(20) COLLATE utf8mb4_unicode_nopad_ci",
    "CHAR(20) CHARACTER SET latin1",
    "VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci",
    "VARCHAR(20) CHARACTER SET utf16",
    "VARBINARY(20)",
)


@pytest.fixture
def world(mariadb: Any, kafka: Any, tmp_path: Path) -> Iterator[VerifyWorld]:
    """A database of the test's own, with topics of its own, for ``millrace verify``."""
    world = VerifyWorld(mariadb, kafka, tmp_path)
    try:
        yield world
    finally:
        world.close()


def test_rows_are_sent_again_by_keys_of_any_collation(world: VerifyWorld, capsys: pytest.CaptureFixture[str]) -> None:
    for number, declared in enumerate(KEYS):
        world.sql(f"CREATE TABLE c{number} (k {declared} PRIMARY KEY, v INT)")
        world.sql(f"INSERT INTO c{number} VALUES ('x', 1), ('ä', 2), ('b''\\\\', 3), ('', 4)")
    world.sql("CREATE TABLE u (k BIGINT UNSIGNED PRIMARY KEY, v INT)")
    world.sql("INSERT INTO u VALUES (18446744073709551615, 2), (9223372036854775808, 4), (3, 3)")
    hexadecimal = {"binary.handling.mode": "hex"}
    asyncio.run(world.send(asyncio.run(world.records(**hexadecimal))))
    names = [f"c{number}" for number in range(len(KEYS))] + ["u"]
    for name in names:
        world.sql(f"UPDATE {name} SET v = 7 WHERE v IN (2, 4)")
    code, tables, error = world.verify(capsys, "--tables", r".*\.[cu]\d*", **hexadecimal)
    assert (code, error) == (1, "")
    for name in names:
        table = tables[name]
        assert (table["missing"], table["extra"], table["different"]) == (0, 0, 2), name
        assert len(table["differences"]) == 2, name
        with world.server.cursor() as cursor:
            cursor.execute(f"SELECT v FROM {name} WHERE {table['condition'] or 'v = 7'}")
            assert cursor.fetchall() == ((7,), (7,)), name
    assert [name for name in names if not tables[name]["condition"]] == ["c7"]  # bytes: the whole table


def test_a_transform_that_changes_keys_has_whole_tables_sent_again(
    world: VerifyWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """The keys of messages name no rows of the source."""
    world.sql("CREATE TABLE named (k VARCHAR(20) PRIMARY KEY, v INT)")
    world.sql("INSERT INTO named VALUES ('ann', 1), ('bob', 2)")
    hidden = {
        "transforms": "hide",
        "transforms.hide.type": "MaskColumns$Key",
        "transforms.hide.columns": r".*\.named\.k",
        "transforms.hide.mask": "md5",
    }
    asyncio.run(world.send(asyncio.run(world.records(**hidden))))
    assert world.verify(capsys, "--tables", r".*\.named", **hidden)[0] == 0
    world.sql("UPDATE named SET v = 7 WHERE k = 'bob'")
    code, tables, error = world.verify(capsys, "--tables", r".*\.named", **hidden)
    assert (code, error) == (1, "")
    assert (tables["named"]["different"], tables["named"]["missing"], tables["named"]["extra"]) == (1, 0, 0)
    assert tables["named"]["condition"] == ""
    assert [(row["source"], row["topic"]) for row in tables["named"]["differences"]] == [({"v": "7"}, {"v": "2"})]


def begin(world: VerifyWorld) -> RowVerification:
    request = VerificationRequest(includes=lambda _name: True, settle_s=0.2, folder=str(world.folder))
    verification = build_verification(world.config, {"bootstrap.servers": world.kafka}, request)
    assert isinstance(verification, RowVerification)
    return verification


def test_a_table_can_be_altered_once_it_is_compared(world: VerifyWorld) -> None:
    async def verify() -> None:
        reports = begin(world).reports()
        first = await anext(reports)
        world.sql("SET lock_wait_timeout = 1")
        world.sql(f"ALTER TABLE {first.table} ADD COLUMN more INT")
        assert len([report async for report in reports]) == 2

    asyncio.run(world.send(asyncio.run(world.records())))
    asyncio.run(verify())


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ("DROP TABLE t", "t was dropped or renamed"),
        ("RENAME TABLE t TO other", "t was dropped or renamed"),
        ("ALTER TABLE t DROP COLUMN f", ""),
        ("ALTER TABLE t MODIFY COLUMN name VARCHAR(200) CHARACTER SET latin1", ""),
        ("TRUNCATE TABLE t", ""),
    ],
)
def test_a_change_of_a_table_leaves_the_others_compared(world: VerifyWorld, change: str, note: str) -> None:
    """It is compared as it is afterwards."""
    verification = begin(world)

    async def verify() -> dict[str, Any]:
        results: dict[str, Any] = {}
        async for report in verification.reports():
            if not results:
                world.sql(change)
            results[report.table.rpartition(".")[2]] = report
        return results

    asyncio.run(world.send(asyncio.run(world.records())))
    results = asyncio.run(verify())
    assert results["pair"].equal
    assert results["loose"].equal
    assert [text for text in verification.notes if "quiet" not in text] == (
        [f"{world.database}.{note} before it could be compared"] if note else []
    )
    if note:
        assert "t" not in results
    elif change.startswith("TRUNCATE"):
        assert results["t"].extra == ROWS
    else:
        assert (results["t"].equal, results["t"].total.source_rows) == (True, ROWS)
