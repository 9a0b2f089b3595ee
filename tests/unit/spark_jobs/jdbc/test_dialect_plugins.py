"""Dialects of other packages: found by their entry points, named by URLs, without a change here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from connectors.errors import ConfigInvalid
from spark_jobs.sinks.jdbc.address import parse_url
from spark_jobs.sinks.jdbc.dialect.dialects import GROUP, list_dialects, load_dialect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MODULE = """
from spark_jobs.sinks.jdbc.dialect.postgresql import PostgreSql


class Cockroach(PostgreSql):
    port = 26257


COCKROACH = Cockroach()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed package with two dialects, one of which needs a driver that is missing."""
    info = tmp_path / "acme_dialects-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-dialects\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\ncockroach = acme_dialects:COCKROACH\noracle = acme_oracle:ORACLE\n"
        "postgresql = acme_dialects:COCKROACH\n"
    )
    (tmp_path / "acme_dialects.py").write_text(_MODULE)
    (tmp_path / "acme_oracle.py").write_text("import a_driver_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "acme_dialects"
    sys.modules.pop("acme_dialects", None)


@pytest.mark.usefixtures("package")
def test_a_dialect_of_another_package_is_used_by_its_name() -> None:
    assert list_dialects() == ["cockroach", "mariadb", "mysql", "oracle", "postgresql", "sqlite"]
    address = parse_url("jdbc:cockroach://h/d")
    assert (address.dialect, address.hosts) == ("cockroach", (("h", 26257),))
    assert type(load_dialect("cockroach")).__module__ == "acme_dialects"
    assert type(load_dialect("postgresql")).__module__ == "spark_jobs.sinks.jdbc.dialect.postgresql", (
        "nobody takes Millrace's names"
    )
    with pytest.raises(
        ConfigInvalid, match="the dialect oracle can't be used: No module named 'a_driver_that_nobody_has'"
    ):
        parse_url("jdbc:oracle://h/d")


def test_without_the_package_its_name_is_unknown() -> None:
    with pytest.raises(ConfigInvalid, match="jdbc:cockroach has no dialect here; there are: mariadb, mysql"):
        parse_url("jdbc:cockroach://h/d")
