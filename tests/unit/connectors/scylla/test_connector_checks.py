"""Errors of a configuration that the cluster shows, and the option that each belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.cql.cluster.session import CqlSession
from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.scylla.config import checks, keys
from connectors.scylla.config.settings import CONFIG
from connectors.scylla.model import CdcOptions, TableId
from tests.unit.connectors.scylla.lists_world import Lists

TABLE = TableId("ks", "t")


def configured(**more: str) -> Any:
    return CONFIG.parse(
        {
            "topic.prefix": "p",
            keys.HOSTS: "h:1",
            keys.TABLES: "ks.t",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
    )


@pytest.mark.parametrize(
    ("error", "more", "name"),
    [
        (Retriable("no node could answer"), {}, keys.HOSTS),
        (Fatal("not understood"), {}, keys.HOSTS),
        (
            ConfigInvalid("the cluster refuses the credentials: no"),
            {"scylla__user": "u", "scylla__password": "p"},
            keys.PASSWORD,
        ),
        (ConfigInvalid("the cluster refuses the credentials: none given"), {}, keys.USER),
        (ConfigInvalid("the trust store /x can't be read"), {"scylla__ssl__enabled": "true"}, keys.SSL),
    ],
)
async def test_who_is_to_blame_for_no_session(
    monkeypatch: pytest.MonkeyPatch, error: Exception, more: dict[str, str], name: str
) -> None:
    async def acquire(_: Any) -> Any:
        raise error

    monkeypatch.setattr(CqlSession, "acquire", acquire)
    (problem,) = await checks.check_cluster(configured(**more))
    assert problem.name == name
    assert str(error) in problem.message


async def test_the_right_to_read_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = Lists()
    lists.add_table(TABLE)
    lists.add_vnodes(100, 2)
    query = lists.query

    async def refused(text: str, parameters: Any = (), **more: Any) -> Any:
        if "_scylla_cdc_log" in text and "LIMIT 1" in text:
            raise Fatal("the user may not do this")
        return await query(text, parameters, **more)

    async def acquire(_: Any) -> Any:
        return lists

    monkeypatch.setattr(CqlSession, "acquire", acquire)
    monkeypatch.setattr(lists, "query", refused)
    (problem,) = await checks.check_cluster(configured())
    assert problem.name == keys.TABLES
    assert 'GRANT SELECT ON "ks"."t_scylla_cdc_log"' in problem.message
    assert lists.released == 1


async def test_a_cluster_without_lists_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = Lists()
    lists.add_table(TABLE)
    query = lists.query

    async def acquire(_: Any) -> Any:
        return lists

    async def answered(text: str, parameters: Any = (), **more: Any) -> Any:
        return [{"cdc$stream_id": b""}] if "LIMIT 1" in text else await query(text, parameters, **more)

    monkeypatch.setattr(CqlSession, "acquire", acquire)
    monkeypatch.setattr(lists, "query", answered)
    (problem,) = await checks.check_cluster(configured())
    assert "lists no streams for ks.t" in problem.message


@pytest.mark.parametrize(
    ("options", "before", "after", "names"),
    [
        (CdcOptions(), "none", "none", []),
        (CdcOptions(), "full", "full", [keys.BEFORE, keys.AFTER]),
        (CdcOptions(preimage="true"), "full", "none", []),
        (CdcOptions(preimage="full"), "only-updated", "none", []),
        (CdcOptions(postimage=True), "full", "only-updated", [keys.BEFORE]),
    ],
)
def test_images_that_are_wanted_must_be_on(options: CdcOptions, before: str, after: str, names: list[str]) -> None:
    config = configured(cdc__output__format="advanced", cdc__include__before=before, cdc__include__after=after)
    assert [problem.name for problem in checks.check_images(config, TABLE, options)] == names


@pytest.mark.parametrize(
    ("form", "options", "warned"),
    [
        ({}, CdcOptions(delta="keys"), True),
        ({}, CdcOptions(delta="keys", postimage=True), True),
        ({}, CdcOptions(), False),
        ({"cdc__output__format": "advanced"}, CdcOptions(delta="keys"), False),
        ({"output__format": "ums"}, CdcOptions(delta="keys"), True),
        ({"output__format": "ums"}, CdcOptions(delta="keys", postimage=True), False),
    ],
)
def test_a_log_of_keys_alone_is_named(form: dict[str, str], options: CdcOptions, warned: bool) -> None:
    problems = checks.check_images(configured(**form), TABLE, options)
    assert [(problem.name, problem.warning) for problem in problems] == [(keys.TABLES, True)] * warned
    assert all("'delta': 'full'" in problem.message for problem in problems)


async def test_tables_that_come_later_are_accepted_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = Lists()
    lists.add_table(TABLE)
    lists.add_table(TableId("ks", "off"), enabled="false")
    lists.add_vnodes(100, 2)
    query = lists.query

    async def answered(text: str, parameters: Any = (), **more: Any) -> Any:
        if "columns" in text and tuple(parameters) == ("ks", "off_scylla_cdc_log"):
            return []
        if "system_schema.keyspaces" in text:
            return [{"keyspace_name": "ks"}]
        return [{"cdc$stream_id": b""}] if "LIMIT 1" in text else await query(text, parameters, **more)

    async def acquire(_: Any) -> Any:
        return lists

    monkeypatch.setattr(CqlSession, "acquire", acquire)
    monkeypatch.setattr(lists, "query", answered)
    problems = await checks.check_cluster(configured(**{keys.TABLES: "ks.t,ks.off,ks.later,elsewhere.t"}))
    assert [(problem.name, problem.warning) for problem in problems] == [(keys.TABLES, True)] * 3
    off, later, elsewhere = (problem.message for problem in problems)
    assert off.startswith("CDC is not enabled for ks.off; enable it with: ALTER TABLE")
    assert later.startswith("There is no table ks.later")
    assert elsewhere.startswith("There is no keyspace elsewhere")
    assert all("the connector reads it as soon as it can" in text for text in (off, later, elsewhere))

    problems = await checks.check_cluster(configured(**{keys.TABLES: "ks.off,ks.later"}))
    assert [(problem.name, problem.warning) for problem in problems] == [(keys.TABLES, True)] * 3
    assert problems[-1].message.startswith("There is no table to capture yet: none of scylla.table.names can be read")


async def test_a_table_without_streams_is_accepted_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = Lists()
    lists.add_table(TABLE)
    query = lists.query

    async def answered(text: str, parameters: Any = (), **more: Any) -> Any:
        return [{"cdc$stream_id": b""}] if "LIMIT 1" in text else await query(text, parameters, **more)

    async def acquire(_: Any) -> Any:
        return lists

    monkeypatch.setattr(CqlSession, "acquire", acquire)
    monkeypatch.setattr(lists, "query", answered)
    (problem,) = await checks.check_cluster(configured())
    assert problem.warning
