"""Masks in every form of Scylla's records, from a real server: planted values are in no record, or rules are refused."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.scylla.client import Emulation
from compose.local.scylla.writes import Insert, Update
from connectors.scylla.connector import ScyllaConnector
from tests.integration.scylla.test_reader_live import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.scylla.emulation import ScyllaEmulation

PLANTED = "planted-mail"
FORMS: dict[str, dict[str, str]] = {
    "legacy": {},
    "ums": {"output_format": "ums"},
    "partition-update": {"output_format": "partition-update"},
    "advanced": {"cdc_output_format": "advanced", "cdc_include_before": "full", "cdc_include_after": "full"},
}


@pytest.fixture(scope="module")
def scylla(scylla_node: ScyllaEmulation) -> Iterator[Emulation]:
    """A server of the module's own, with a client."""
    client = Emulation(scylla_node.address)
    yield client
    client.close()


@pytest.mark.slow
async def test_no_form_shows_a_masked_column(scylla: Emulation, scylla_keyspace: Callable[..., str]) -> None:
    full = f"{scylla_keyspace()}.t"
    await asyncio.to_thread(
        scylla.create_table,
        f"CREATE TABLE {full} (pk int, ck int, mail text, PRIMARY KEY (pk, ck)) WITH "
        "cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}",
    )
    await asyncio.to_thread(scylla.new_generation, 4, 2, start_ms=int(time.time() * 1000) - 60_000)
    for write in (
        Insert(full, {"pk": 1, "ck": 1, "mail": PLANTED}),
        Update(full, {"pk": 1, "ck": 1}, {"mail": f"{PLANTED}2"}),
    ):
        await asyncio.to_thread(scylla.apply, write)
    rules = {"mask.rules": "m", "mask.m.columns": rf"{full.replace('.', '[.]')}\.mail", "mask.m.type": "md5"}

    async def read(more: dict[str, str], masks: dict[str, str]) -> str:
        rig = Rig(scylla.address, full, scylla_initial_lookback_ms="50000", **more)
        rig.raw |= masks
        (task,) = await rig.tasks()
        # Both changes, however many records the form has for them.
        return repr(
            await rig.take(
                task,
                lambda got: (
                    PLANTED + "2" in repr(got) if not masks else len(got) >= 1 + (more.get("output_format") != "ums")
                ),
            )
        )

    for form, more in FORMS.items():
        assert PLANTED in await read(more, {}), form
        shown = await read(more, rules)
        assert PLANTED not in shown, form
        assert "millrace.masked" in shown or "'encoded': True" in shown, form


@pytest.mark.parametrize(
    ("column", "form", "word"),
    [
        ("pk", "partition-update", "primary key"),
        ("ck", "partition-update", "primary key"),
        ("mail", "partition-update", "nulls"),
    ],
)
async def test_what_a_table_can_not_have_masked_is_refused_at_validation(
    scylla: Emulation, scylla_keyspace: Callable[..., str], column: str, form: str, word: str
) -> None:
    full = f"{scylla_keyspace()}.t"
    await asyncio.to_thread(
        scylla.create_table,
        f"CREATE TABLE {full} (pk int, ck int, mail text, PRIMARY KEY (pk, ck)) WITH cdc = {{'enabled': true}}",
    )
    await asyncio.to_thread(scylla.new_generation, 4, 2)
    raw: dict[str, Any] = {
        **Rig(scylla.address, full, **FORMS[form]).raw,
        "mask.rules": "m",
        "mask.m.type": "md5",
        "mask.m.columns": rf".*\.{column}",
        "mask.m.nulls": "mask" if column == "mail" else "keep",
    }
    (problem,) = await ScyllaConnector.validate(ScyllaConnector.config_def.parse(raw))
    assert problem.name == "mask.rules"
    assert word in problem.message
