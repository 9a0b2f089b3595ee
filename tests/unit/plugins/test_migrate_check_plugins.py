"""The knowledge of millrace migrate-check about the plugins in plugin.path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.migration import Finding, examine_connector, plugins_of
from worker.plugins.registry import PluginRegistry
from worker.secrets.masking import SecretMasker
from worker.secrets.providers import ConfigTransformer

from ._packages import package, transform

if TYPE_CHECKING:
    from pathlib import Path


async def test_plugins_that_can_not_be_loaded_are_reported_with_the_reason(tmp_path: Path) -> None:
    package(
        tmp_path / "acme",
        "acme",
        code="import no_such_driver",
        entries="[millrace.connectors]\nacme = acme:AcmeSource\n",
    )
    half = transform(tmp_path / "half", "plug")
    (half / "plug-1.0.dist-info" / "entry_points.txt").write_text("[millrace.transforms]\nshout\n")
    catalog, warnings = await plugins_of(PluginRegistry(), str(tmp_path))
    selection = catalog.select({"connector.class": "acme.AcmeSource"}, {})
    assert selection.problems["connector.class"] == (
        "Class acme.AcmeSource is in the environment acme of plugin.path, but can't be loaded: ModuleNotFoundError: No module "
        "named 'no_such_driver'"
    )
    assert [warning.partition(" can't be used: ")[0] for warning in warnings] == [
        f"plugins in {half}",
        "plugin acme:AcmeSource",
    ]


async def test_a_note_names_its_option_once() -> None:
    connector = {
        "name": "lines",
        "connector.class": "FileStreamSource",
        "file": "/lines",
        "topic": "lines",
        "topi": "x",
    }
    finding = Finding("lines", "FileStreamSource", "STARTED", offsets=1)
    await examine_connector(
        finding, connector, PluginRegistry(), ConfigTransformer({}), SecretMasker(), {}, deadline_s=20
    )
    assert (finding.problems, finding.notes) == (
        [],
        ["topi is no option of this connector and has no effect; did you mean topic?"],
    )
