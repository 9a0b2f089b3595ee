"""One HBase for the tests of this folder, and a reader of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compose.local.targets.hbase import HBase
from spark_jobs.sinks.hbase.config import CONFIG_DEF, parse_settings
from spark_jobs.sinks.hbase.protocol import HbaseConnection, load_interface
from worker.fetch.java import FAST_START

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    #: By row key the cells, each with its values from the newest, as (version, value).
    Cells = dict[str, dict[str, list[tuple[int, bytes]]]]


class Reader:
    """Asks the server with requests of its own."""

    def __init__(self, address: str) -> None:
        self.interface = load_interface()
        config = CONFIG_DEF.parse({"sink.hbase.address": address, "sink.hbase.timeout.ms": "60000"})
        self._settings = parse_settings(config)
        self.connection = HbaseConnection(self._settings)

    def name(self, table: str) -> Any:
        space, _, qualifier = table.rpartition(":")
        return self.interface.TableName(space=space.encode() or None, qualifier=qualifier.encode())

    def create(self, table: str, *families: str, attributes: Mapping[str, str] | None = None, **options: Any) -> None:
        columns = [self.interface.Family(name=family.encode(), **options) for family in families]
        named = {name.encode(): value.encode() for name, value in (attributes or {}).items()}
        description = self.interface.Table(name=self.name(table), families=columns, attributes=named or None)
        self.connection.ask("createTable", description, None)

    def family(self, table: str, name: str) -> Any:
        described = self.connection.ask("getTableDescriptor", self.name(table))
        return {family.name.decode(): family for family in described.families}[name]

    def cells(self, table: str, versions: int = 1) -> Cells:
        """All cells, as `family:column`; none where there is no table."""
        self.connection.close()  # the server ends one that is idle for a minute
        self.connection = HbaseConnection(self._settings)
        if not self.connection.ask("tableExists", self.name(table)):
            return {}
        stored: Cells = {}
        first = b""
        while True:
            scan = self.interface.Scan(first=first, caching=500, versions=versions)
            # A page has about two megabytes at most, also where rows are large.
            rows = self.connection.ask("getScannerResults", table.encode(), scan, 500)
            for row in rows:
                columns = stored.setdefault(row.row.decode(), {})
                for cell in row.cells:
                    name = f"{cell.family.decode()}:{cell.qualifier.decode()}"
                    columns.setdefault(name, []).append((cell.timestamp, cell.value))
            if not rows:
                return stored
            first = rows[-1].row + b"\0"


@pytest.fixture(scope="module")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    with HBase(tmp_path_factory.mktemp("hbase"), port=None, jvm_options=FAST_START) as server:
        yield server


@pytest.fixture(scope="module")
def reader(hbase: HBase) -> Iterator[Reader]:
    reader = Reader(hbase.address)
    reader.create("warm", "cf")  # the first table takes much longer than the others
    yield reader
    reader.connection.close()
