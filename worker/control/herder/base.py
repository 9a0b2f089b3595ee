"""Code that all parts of the herder share."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import Retriable
from worker.control.placement.planning import INSTANCE
from worker.control.state.rule_sets import RULES_DOCUMENT, RULES_NAME, RULES_VERSION
from worker.control.waiting import wait_until
from worker.protocol import RemoteError, Validate
from worker.rest.facade import REBALANCE_TEXT, RestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from connectors.options import Config
    from offsets.cluster import ClusterSnapshot
    from worker.control.herder.verify import VerificationRun
    from worker.control.node import WorkerNode
    from worker.protocol import ToHost

#: How long a request waits for a leader that is just taking over.
_TAKE_OVER_S: Final = 5.0
#: So long after a request was forwarded a client may know more than this worker.
_BEHIND_S: Final = 2.0
_CATCH_UP_S: Final = 2.0
#: The kind of a task host's error -> the status of the answer.
_STATUS: Final = {"ConfigInvalid": 400, "LookupError": 404, "Retriable": 503}


def with_problems(infos: dict[str, Any], problems: Mapping[str, str]) -> dict[str, Any]:
    """``ConfigInfos`` with what only the control process knows: it replaces what a host says of the same options. Pure."""
    for entry in infos["configs"]:
        problem = problems.get(entry["value"]["name"])
        if problem is not None:
            infos["error_count"] += 1 - len(entry["value"]["errors"])
            entry["value"]["errors"] = [problem]
    return infos


def hide_rules(infos: dict[str, Any]) -> None:
    """Take the rule set that was put into a configuration out of the answer."""
    infos["configs"] = [entry for entry in infos["configs"] if entry["value"]["name"] != RULES_DOCUMENT]


def lock_of(locks: weakref.WeakValueDictionary[str, asyncio.Lock], name: str) -> asyncio.Lock:
    """A connector's lock; keep it for as long as it is needed, and no longer."""
    lock = locks.get(name)
    if lock is None:
        lock = locks[name] = asyncio.Lock()
    return lock


async def ask_host(
    ctx: HerderContext,
    message: ToHost,
    subject: str = "",
    environments: tuple[str, ...] | None = None,
    statuses: Mapping[str, int] = _STATUS,
) -> Any:
    """The answer of a task host.

    Args:
        ctx: the worker's.
        message: the question.
        subject: begins the messages of refusals.
        environments: what the host must have; None: what the configuration in the message needs.
        statuses: the kind of a host's error -> the status of the answer.

    Raises:
        RestError: 400 for a refusal, 404 for what does not exist, 503 for what is unavailable now, the hosts included, 500 for
            anything else, such as no answer in time.
    """
    try:
        return await ctx.node.pool.ask(message, ctx.validate_s, environments)
    except RemoteError as error:
        raise RestError(statuses.get(error.kind, 500), f"{subject}{error}") from error
    except TimeoutError:
        raise RestError(
            500,
            f"{subject}no answer within {ctx.validate_s:g} s (validate.timeout.ms). "
            "Check that the systems which the answer needs are available",
        ) from None
    except Retriable as error:
        raise RestError(503, f"{subject}{error}") from error


class HerderContext:
    """The node, and checks that most operations begin with.

    Args:
        node: this worker.
        config: the worker's parsed configuration.
        cluster_id: Kafka's cluster id.
        version: version of Millrace, as ``GET /`` shows it.
        own_offsets: the own offsets topic of a connector with this configuration and aiokafka arguments to read and write it
            with, or None.
    """

    def __init__(
        self,
        node: WorkerNode,
        config: Config,
        cluster_id: str,
        version: tuple[str, str],
        own_offsets: Callable[[Mapping[str, str]], Awaitable[tuple[str, dict[str, Any]] | None]],
    ) -> None:
        self.node = node
        self.config = config
        self.cluster_id = cluster_id
        self.version = version
        self.own_offsets = own_offsets
        self.validate_s: float = config["validate.timeout.ms"] / 1000
        self.start_drain: Callable[[], None] | None = None
        self.was_ready = False
        #: Connector -> held from looking at its configuration, state, offsets or instructions until their successors are
        #: written; there is one while somebody holds it or waits for it.
        self.config_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        #: Rule set -> held from looking at its versions until the next is written.
        self.rule_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        #: Rate and lag of all connectors as the workers reported last, and the time of that.
        self.rates: Mapping[str, tuple[float, float | None]] = {}
        self.rates_at = float("-inf")
        #: Connector -> the inputs of its row in the console, and the row.
        self.rows: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        #: The worker's properties, unresolved.
        self.properties: Mapping[str, str] = {}
        #: Connector -> the verification that runs here, or ended here.
        self.verifications: dict[str, VerificationRun] = {}
        #: Looks for verifications that are due.
        self.verification_watch: asyncio.Task[None] | None = None
        self._behind_until = 0.0

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The config topic's state now."""
        return self.node.config.snapshot

    async def catch_up(self, name: str | None = None) -> None:
        """Read the config topic to its end if a client could know more than this worker.

        That is so right after a request was forwarded to the leader, and when a name is asked for that is not known here.
        """
        if self.node.leader.active or (
            time.monotonic() > self._behind_until and (name is None or name in self.snapshot.connectors)
        ):
            return
        with contextlib.suppress(Retriable):  # Kafka is unavailable: answer with the last known state
            await self.node.config.log.read_to_end(_CATCH_UP_S)

    async def require_connector(self, name: str) -> None:
        """Raise 404 unless the connector exists."""
        await self.catch_up(name)
        if name not in self.snapshot.connectors:
            raise RestError(404, f"Connector {name} not found")

    def connector_type(self, config: Mapping[str, str]) -> str:
        """``source``, ``sink`` or ``unknown``."""
        plugin = self.node.plugins.catalog.connector(config)
        return "unknown" if plugin is None else plugin.kind

    async def lead(self) -> None:
        """Raise ``NotLeader`` unless this worker leads; waits a moment if it is just taking over."""
        leader = self.node.leader
        if leader.chosen and not leader.active:
            await wait_until(lambda: leader.active or not leader.chosen, _TAKE_OVER_S)
        if not leader.active:
            self._behind_until = time.monotonic() + _BEHIND_S
        leader.check()

    @property
    def exactly_once(self) -> bool:
        """Whether source records are written in transactions."""
        return str(self.config["exactly.once.source.support"]).lower() == "enabled"

    async def ask_validation(self, config: dict[str, str], plugin: str | None, rules: Any = None) -> dict[str, Any]:
        """``ConfigInfos`` from a task host that has the plugins which the configuration names.

        Args:
            config: the configuration.
            plugin: the class that the URL names, or None.
            rules: the rule set that ``rules.name`` shall stand for; None: the one that is kept.
        """
        named = config if plugin is None or "connector.class" in config else {**config, "connector.class": plugin}
        selection = self.node.plugins.select(named)
        if selection.problems and self.node.plugins.pending:
            await self.node.plugins.settled(self.validate_s / 2)
            selection = self.node.plugins.select(named)
        connector = selection.connector
        if "connector.class" in selection.problems and (
            connector is None or connector.environment not in ("", *selection.environments)
        ):
            raise RestError(400, selection.problems["connector.class"])
        message = Validate(
            self._with_rules(config, rules), plugin, self.node.plugins.catalog.others(selection.environments)
        )
        try:
            answer: dict[str, Any] = orjson.loads(await ask_host(self, message, environments=selection.environments))
        except RestError as error:
            if error.status == 503 and selection.problems:  # no host would make the configuration a good one
                raise RestError(400, selection.problem or "") from error
            raise
        hide_rules(answer)
        return with_problems(answer, {**self._rule_problems(config, rules), **selection.problems})

    def _with_rules(self, config: dict[str, str], rules: Any) -> dict[str, str]:
        """The configuration with the rule set that it names, which no task host knows."""
        if not config.get(RULES_NAME):
            return config
        if rules is None:
            version = self.node.placement.rules.chosen(config)
            if version is None:
                return config
            rules = version.rules
        return {**config, RULES_DOCUMENT: rules if isinstance(rules, str) else orjson.dumps(rules).decode()}

    def _rule_problems(self, config: Mapping[str, str], rules: Any) -> dict[str, str]:
        """The complaints about the name of a rule set."""
        name = config.get(RULES_NAME)
        if not name or rules is not None or self.node.placement.rules.chosen(config) is not None:
            return {}
        if not self.node.placement.rules.versions(name):
            return {RULES_NAME: f"There is no rule set {name}. PUT /rules/{name} saves one, GET /rules lists them"}
        return {
            RULES_VERSION: f"Rule set {name} has no version {config.get(RULES_VERSION)}; GET /rules/{name}/versions lists them"
        }

    async def wait_stopped(self, name: str, deadline_s: float) -> None:
        """Wait until no worker runs a task of the connector.

        Raises:
            RestError: 409: not within the deadline.
        """
        slots = self.node.placement.table.slots
        if not await wait_until(lambda: all(task == INSTANCE for task in slots.get(name, ())), deadline_s):
            raise RestError(409, REBALANCE_TEXT)
