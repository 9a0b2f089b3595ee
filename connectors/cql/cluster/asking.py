"""Questions to a cluster about a configuration: an error on the way becomes a complaint about the option to fix."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.cql.cluster.session import CqlSession
from connectors.errors import ConfigInvalid, MillraceError, Retriable
from connectors.options import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from connectors.cql.cluster.session import SessionSettings

#: Seconds that all questions may take together: a REST client waits for the answer.
DEADLINE_S: Final = 30.0


class OptionNames(NamedTuple):
    """The connector's options for connecting."""

    hosts: str
    user: str
    password: str
    tls: str


async def cluster_tables(settings: SessionSettings) -> list[str]:
    """The tables of all keyspaces but those of the cluster itself. Opens a session and gives it back.

    Raises:
        ConfigInvalid: the cluster refuses the account.
        Retriable: it can't be asked now.
    """
    session: CqlSession | None = None
    try:
        async with asyncio.timeout(DEADLINE_S):
            session = await CqlSession.acquire(settings)
            rows = await session.query("SELECT keyspace_name, table_name FROM system_schema.tables", consistency="ONE")
    except TimeoutError:
        raise Retriable(f"The cluster did not answer within {DEADLINE_S:.0f} s; check the way to it") from None
    finally:
        if session is not None:
            await session.release()
    return sorted(
        f"{row['keyspace_name']}.{row['table_name']}"
        for row in rows
        if not str(row["keyspace_name"]).startswith("system")
    )


async def ask_cluster(
    config: Mapping[str, Any],
    names: OptionNames,
    settings: Callable[[], SessionSettings],
    ask: Callable[[CqlSession], Awaitable[list[ConfigProblem]]],
) -> list[ConfigProblem]:
    """Return the complaints of ``ask``, or one complaint that it could not ask. Opens a session and gives it back.

    Args:
        config: the connector's.
        names: of its options.
        settings: how it connects; may raise ``ConfigInvalid``.
        ask: asks the cluster; a ``MillraceError`` from it means that it could not ask.
    """
    session: CqlSession | None = None
    try:
        async with asyncio.timeout(DEADLINE_S):
            session = await CqlSession.acquire(settings())
            return await ask(session)
    except TimeoutError:
        return [
            ConfigProblem(
                names.hosts,
                f"The cluster did not answer within {DEADLINE_S:.0f} s; check {names.hosts} and the way to it",
            )
        ]
    except ConfigInvalid as error:
        return [_explain_refusal(config, names, error)]
    except MillraceError as error:
        return [ConfigProblem(names.hosts, f"The cluster can't be asked: {error}")]
    finally:
        if session is not None:
            await session.release()


def _explain_refusal(config: Mapping[str, Any], names: OptionNames, error: ConfigInvalid) -> ConfigProblem:
    message = str(error)
    if "credentials" in message or "user" in message:
        return ConfigProblem(names.password if config[names.user] is not None else names.user, message)
    return ConfigProblem(names.tls if config[names.tls] else names.hosts, message)
