"""The control process: a Faust app whose services are the worker's parts.

Faust carries the services' life, the group membership and the leader; its web server, tables, agents and producers are not
used. Order of the start: internal topics, REST (which answers 503 until all is there), task hosts and the cluster's state,
then the group. The stop goes the other way round, after ``drain`` has handed the units over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import orjson

from connectors.errors import Fatal, MillraceError
from offsets.admin import TopicAdmin
from offsets.fetch import CREDENTIALS
from offsets.store import OffsetStore
from offsets.topics import ensure_internal_topic
from worker import __version__
from worker.config.worker_config import exactly_once, parse_labels, placement_topic, process_count
from worker.control import clients
from worker.control.group.contact_watch import ContactWatch
from worker.control.group.membership import GroupMembership, WorkerMember, find_foreign_members
from worker.control.group.peers import PeerWatch
from worker.control.herder.base import HerderContext
from worker.control.herder.cluster import ClusterHerder
from worker.control.hosts import HostLimits, HostPool
from worker.control.leader import LeaderDuties
from worker.control.node import WorkerNode
from worker.control.placement.reconciler import Reconciler
from worker.control.plugins import PluginWatch
from worker.control.shell import WorkerPart, make_app
from worker.control.state.stores import ClusterStores, ConfigStore, PlacementStore, StatusStore, internal_topics
from worker.control.waiting import wait_until
from worker.kafka.tls import client_context
from worker.plugins.model import Description
from worker.protocol import DescribePlugins, Init
from worker.rest.facade import NotLeader
from worker.rest.forwarding import WorkerClient
from worker.rest.server import RestServer
from worker.rest.settings import RestSettings, tls_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.options import Config
    from worker.control.group.membership import GroupView
    from worker.control.host_process import HostProcess
    from worker.logs import LoggerRegistry
    from worker.secrets.rotation import SecretKeeper

_log = logging.getLogger(__name__)
_READ_DEADLINE_S: Final = 120.0
_JOIN_DEADLINE_S: Final = 180.0
#: What config providers may take to release what they hold.
_PROVIDERS_S: Final = 2.0


class ControlProcess:
    """One worker.

    Args:
        properties: the worker's properties as in its file.
        resolved: the same with references to config providers resolved.
        config: the same, parsed.
        loggers: this process's loggers.
        secrets: follows what the references of the properties stand for; closed at the end.
        processes: number of task hosts, over what the properties say.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        resolved: Mapping[str, str],
        config: Config,
        loggers: LoggerRegistry,
        secrets: SecretKeeper,
        processes: int | None = None,
    ) -> None:
        self.properties = dict(properties)
        self._resolved = dict(resolved)
        self.config = config
        self._processes = process_count(config, processes)
        self._labels = parse_labels(config)
        self._incarnation = uuid.uuid4().hex
        self._started_ms = int(time.time() * 1000)
        self._client = clients.reader_arguments(self._resolved, config["client.id"] or f"millrace-{self._group}")
        self._cluster_id = ""
        self._loggers = loggers
        self._secrets = secrets
        self._connector_clients = clients.ConnectorClients(self._resolved, secrets, exactly_once=exactly_once(config))
        self._membership: GroupMembership | None = None
        self._app: Any = None
        self._watch: ContactWatch | None = None
        self._peers = PeerWatch(self._incarnation, self._put_out)
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.node = WorkerNode(
            "", self._incarnation, loggers, exactly_once=exactly_once(config), put_task_configs=self._put_task_configs
        )
        self.context: HerderContext | None = None
        self.herder: ClusterHerder | None = None
        self._rest: RestServer | None = None

    @property
    def _group(self) -> str:
        return str(self.config["group.id"])

    @property
    def _session_s(self) -> float:
        return float(self.config["session.timeout.ms"]) / 1000

    @property
    def client(self) -> dict[str, Any]:
        """Aiokafka arguments for readers and administration."""
        return dict(self._client)

    async def put_connector(self, name: str, config: Mapping[str, str]) -> bool:
        """Create or update a connector through the leader; returns whether it is new, as far as this worker knows.

        Raises:
            NotLeader: there is no leader at the moment.
            RestError: it was refused.
        """
        if self.herder is None:
            raise NotLeader(None)
        is_known = name in self.node.config.snapshot.connectors
        try:
            created, _ = await self.herder.put_connector_config(name, config)
        except NotLeader as error:
            key = self.node.session_key()
            if error.leader_url is None or key is None:
                raise
            await self.node.client.send_signed(
                "PUT", error.leader_url, f"/connectors/{quote(name, safe='')}/config", orjson.dumps(dict(config)), key
            )
            return not is_known
        return created

    # Life.

    async def start(self) -> None:
        """Start everything; returns when the worker has joined the group.

        Raises:
            MillraceError: it could not start; the message says why and how to fix it.
        """
        loop = asyncio.get_running_loop()
        self._membership = GroupMembership(
            self._describe,
            self._see,
            loop,
            f"{self._group}-millrace-members",
            self.config["group.takeover.wait.ms"] / 1000,
            self._session_s,
            self.config["heartbeat.interval.ms"] / 1000,
        )
        self.node.numbers.membership_traffic = self._membership.traffic
        self.node.contact = self._membership.contact
        parts = [
            WorkerPart("internal topics", self._start_topics, _do_nothing),
            WorkerPart("REST", self._start_rest, self._stop_rest),
            WorkerPart("task hosts and state", self._start_node, self._stop_node),
        ]
        self._app = make_app(self.config, self._membership, self._consumer_arguments(), parts)
        starting = asyncio.ensure_future(self._app.start())
        contact = self._membership.contact
        joined = await wait_until(lambda: starting.done() or contact.refused is not None, _JOIN_DEADLINE_S)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            reason = (
                f"Kafka refuses it ({contact.refused})"
                if joined
                else f"it did not succeed within {_JOIN_DEADLINE_S:g} s"
            )
            raise Fatal(
                f"the worker could not join the group {self._group!r} (group.id): {reason}. Check that no Kafka Connect "
                "cluster and no consumer group uses this group.id (stop the one that is taken over first), that the "
                "worker's user may read the group, and that session.timeout.ms is within the brokers' "
                "group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        await starting
        if self._app.crashed:
            raise Fatal(f"the worker could not start: {self._app.crash_reason!r}") from self._app.crash_reason
        await self._follow_secrets()
        self._start_watch(self._membership).start_thread()

    async def stop(self) -> None:
        """Leave the group and stop everything; what still runs here is stopped too. Takes a few seconds at most."""
        if self._watch is not None:
            await self._watch.stop()
        await self._peers.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PROVIDERS_S):
                await self._secrets.close()
        if self.herder is not None:
            await self.herder.verifications.close_verifications()
        if self._app is not None:
            try:
                async with asyncio.timeout(15):
                    await self._app.stop()
            except TimeoutError:
                _log.error("The worker's services did not stop within 15 s; they are left to the end of the process")
            else:
                if self._membership is not None:
                    self._membership.close()

    def start_drain(self) -> None:
        """Tell the group that this worker wants no work any more; does not block."""
        if self.node.draining or self._membership is None:
            return
        _log.info("Draining: handing connectors and tasks over to the other workers")
        self.node.draining = True
        self._membership.rejoin()

    async def drain(self, deadline_s: float) -> bool:
        """Hand everything over; returns whether nothing is left here within ``deadline_s`` seconds."""
        self.start_drain()
        node = self.node
        if not await wait_until(
            lambda: not node.reconciler.local_runs and not node.placement.table.assigned_to(node.me), deadline_s
        ):
            _log.warning(
                "These were not handed over within %g s: %s",
                deadline_s,
                ", ".join(map(str, sorted(node.reconciler.local_runs))) or "placements only",
            )
            return False
        return True

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait until REST answers.

        Raises:
            Fatal: not within the deadline.
        """
        if not await wait_until(lambda: self.herder is not None and self.herder.admin.ready(), deadline_s):
            raise Fatal(
                f"the worker did not get ready within {deadline_s:g} s: it has "
                f"{'no leader' if self.node.view else 'not joined the group'} yet; see the log above"
            )

    # Parts, in the order of their start.

    def _consumer_arguments(self) -> dict[str, Any]:
        session = self.config["session.timeout.ms"]
        return {
            **self._client,
            "group_id": self._group,
            "enable_auto_commit": False,
            "auto_offset_reset": "latest",
            "session_timeout_ms": session,
            "heartbeat_interval_ms": self.config["heartbeat.interval.ms"],
            # Members stop nothing to rebalance: whoever has not joined again within a session is not there.
            "rebalance_timeout_ms": session,
            "request_timeout_ms": session + 4000,
            # An idle consumer is not a dead one; what is dead is found by the watches below.
            "max_poll_interval_ms": 2**31 - 1,
        }

    async def _start_topics(self) -> None:
        config, properties = self.config, self.properties
        deadline_s = config["kafka.start.timeout.ms"] / 1000
        await asyncio.gather(
            *(ensure_internal_topic(self._client, topic, deadline_s) for topic in internal_topics(config, properties))
        )
        async with TopicAdmin(self._client) as admin:
            members = f"{self._group}-millrace-members"
            if await admin.partitions(members) is None:
                await admin.create(members, 1, config["config.storage.replication.factor"], {"retention.ms": "3600000"})
            self._cluster_id = await cluster_id(self._client)

    async def _start_rest(self) -> None:
        settings = RestSettings.from_properties(self._resolved)
        node = self.node
        self.context = HerderContext(
            node, self.config, self._cluster_id, (__version__, "unknown"), self._connector_clients.own_offsets
        )
        self.context.start_drain = self.start_drain
        self.context.properties = self.properties
        self.herder = ClusterHerder(self.context)
        node.client = WorkerClient(30, lambda: client_context(settings.tls), tls_files(settings.tls))
        self._build_node()
        self.herder.verifications.watch_verifications()
        self._rest = RestServer(self.herder, settings, workers=self.herder)
        await self._rest.start()
        # A thread that is not awaited: a worker without a network must neither start nor stop later for it.
        threading.Thread(target=_fetch_libraries, name="console-libraries", daemon=True).start()
        node.worker_id = self._rest.worker_id
        node.stats.client_id = self.config["client.id"] or node.worker_id

    async def _stop_rest(self) -> None:
        await self.node.client.close()
        if self._rest is not None:
            await self._rest.stop()

    def _build_node(self) -> None:
        config, node = self.config, self.node
        node.config = ConfigStore(config["config.storage.topic"], self._client, node.config_changed)
        node.placement = PlacementStore(placement_topic(config), self._client, node.placement_changed)
        node.status = StatusStore(
            config["status.storage.topic"], self._client, {"linger_ms": 0}, node.status_gone, node.topic_gone
        )
        node.offsets = OffsetStore(config["offset.storage.topic"], self._client)
        node.leader = LeaderDuties(
            ClusterStores(node.config, node.placement, node.status),
            clients.leader_producer(
                self._resolved,
                f"{self._client['client_id']}-leader",
                f"connect-cluster-{self._group}",
                config["transaction.timeout.ms"],
            ),
            config,
            self._connector_clients.task_producer,
            self._incarnation,
            exactly_once=exactly_once(config),
            in_touch=self._in_touch,
            settled=lambda: self._membership is not None and self._membership.contact.joined,
        )
        node.plugins = PluginWatch(
            config["plugin.path"],
            self._resolved,
            config["plugin.scan.interval.ms"] / 1000,
            node.plugins_changed,
            isolating=self._processes > 0,
        )
        max_hosts: int | None = config["plugin.environment.hosts.max"]
        node.pool = HostPool(
            self._processes,
            self._init_message,
            node,
            config["task.host.stuck.ms"] / 1000,
            node.plugins,
            HostLimits(
                max(4, 2 * self._processes) if max_hosts is None else max_hosts,
                config["plugin.environment.host.idle.ms"] / 1000,
            ),
        )
        node.reconciler = Reconciler(
            node.pool,
            node,
            stop_s=config["task.shutdown.graceful.timeout.ms"] / 1000,
            backoff_s=(
                config["task.host.restart.backoff.ms"] / 1000,
                config["task.host.restart.backoff.max.ms"] / 1000,
            ),
            crash_limit=config["task.host.crash.limit"],
        )

    async def _start_node(self) -> None:
        node = self.node
        started = time.monotonic()
        await asyncio.gather(
            node.config.log.start(_READ_DEADLINE_S),
            node.placement.log.start(_READ_DEADLINE_S),
            node.status.start(_READ_DEADLINE_S),
            node.offsets.start(_READ_DEADLINE_S),
            self._start_hosts(),
        )
        node.config.live = True
        for name, level in node.config.snapshot.loggers.items():
            _log.debug(
                "Logger %s was set to %s for the cluster before this worker started; its own start level holds",
                name,
                level,
            )
        node.caught_up = True
        node.reconciler.start()
        node.leader.start()
        node.start()
        _log.info(
            "Read the cluster's state and started %d task hosts in %.2f s: %d connectors",
            len(node.pool.hosts),
            time.monotonic() - started,
            len(node.config.snapshot.connectors),
        )

    async def _start_hosts(self) -> None:
        node = self.node
        await node.pool.start()
        await node.plugins.start(msgspec.json.decode(await node.pool.ask(DescribePlugins(), 30, ()), type=Description))

    async def _stop_node(self) -> None:
        node = self.node
        await node.leader.stop()
        await node.reconciler.stop()
        await node.stop()
        await node.plugins.stop()
        await node.pool.stop(3)
        await asyncio.gather(node.config.log.stop(), node.placement.log.stop(), node.status.stop(), node.offsets.stop())

    # What parts need of each other.

    def _init_message(self, host: HostProcess) -> Init:
        plugins = self.node.plugins
        return Init(
            self.node.worker_id,
            host.number,
            self.properties,
            self._loggers.levels(),
            self._cluster_id,
            plugins.paths(host.environments),
            plugins.skipped(host.environments),
        )

    def _describe(self) -> WorkerMember:
        node = self.node
        url = self._rest.advertised_url if self._rest is not None else ""
        return WorkerMember(
            worker_id=node.worker_id,
            url=url,
            incarnation=self._incarnation,
            started_ms=self._started_ms,
            capacity=max(1, self._processes),
            labels=self._labels,
            draining=node.draining,
            leading=node.leader.chosen,
            config_topic=self.config["config.storage.topic"],
        )

    def _in_touch(self) -> bool:
        """Whether Kafka has confirmed the membership so lately that no other worker can have been given this one's units."""
        return self._membership is not None and self._membership.contact.is_trusted()

    def _see(self, view: GroupView) -> None:
        self.node.see(view)
        topic = self.config["config.storage.topic"]
        for member in find_foreign_members(view, topic):
            _log.error(
                "Worker %s is a member of the group %s too, but its config.storage.topic is %s and not %s: %s. Give each "
                "cluster a group.id of its own",
                member.worker_id,
                self.config["group.id"],
                member.config_topic,
                topic,
                "it leads, so nothing of this cluster is placed or can be changed"
                if member.incarnation == view.leader.incarnation
                else "nothing of this cluster is placed on it",
            )
        if self.config["takeover.on.refused.connections"]:
            self._peers.see(view)

    async def _put_out(self, member: WorkerMember) -> bool:
        return self._membership is not None and await self._membership.put_out(member)

    async def _put_task_configs(self, name: str, configs: list[dict[str, str]]) -> None:
        if self.herder is not None:
            await self.herder.put_task_configs(name, configs)

    # New values of config providers.

    async def _follow_secrets(self) -> None:
        try:
            await self._secrets.resolve(self.properties)
        except MillraceError as error:
            _log.warning(
                "New values of the worker's properties will not be taken over before its next start: %s", error
            )
            return
        self._secrets.watch(self, self.properties, self._resolved, self._properties_changed)
        self._secrets.start()

    async def _properties_changed(self, resolved: dict[str, str], names: frozenset[str]) -> None:
        """Let the worker's own Kafka clients log in with new values from their next connection on."""
        self._resolved.update({name: resolved[name] for name in names})
        left = clients.left_for_a_start(names)
        if left:
            _log.warning(
                "There are new values of the worker's properties %s, which it takes over when it is started again: do "
                "that, one worker after the other",
                ", ".join(left),
            )
        own_names = sorted(names & clients.own_properties(self._resolved).keys())
        if not own_names:
            return
        arguments = await asyncio.to_thread(clients.reader_arguments, self._resolved, self._client["client_id"])
        credentials: dict[str, Any] = {name: arguments[name] for name in CREDENTIALS if name in arguments}
        self._client.update(credentials)
        node = self.node
        for part in (node.config.log, node.placement.log, node.status.log, node.offsets, node.leader, self._membership):
            if part is not None:
                part.renew(credentials)
        _log.info(
            "The worker's own Kafka clients use new values of %s from their next connection on%s",
            ", ".join(own_names),
            "; its https listeners do when it is started again"
            if any(name.startswith("ssl.") for name in own_names)
            else "",
        )

    def _start_watch(self, membership: GroupMembership) -> ContactWatch:
        """Begin to watch the contact with the group's coordinator."""
        self._watch = ContactWatch(membership.contact, self.node, self._session_s, self._fail_worker)
        self._watch.start(self._app)
        return self._watch

    def _fail_worker(self, reason: str) -> None:
        if not self.failed.done():
            _log.error("This worker can't continue: %s", reason)
            self.failed.set_result(reason)


async def _do_nothing() -> None:
    """For a part that has nothing to stop."""


async def cluster_id(client: Mapping[str, Any]) -> str:
    """Kafka's cluster id.

    Raises:
        KafkaError: no broker answers.
    """
    from aiokafka.admin import AIOKafkaAdminClient

    admin = AIOKafkaAdminClient(**client)
    await admin.start()
    try:
        description: dict[str, Any] = await admin.describe_cluster()
        return str(description.get("cluster_id", ""))
    finally:
        await admin.close()


def _fetch_libraries() -> None:
    """Fetch the libraries of the console's pages into the cache; a wheel has them already. Blocks."""
    from worker.console.libraries import find_libraries
    from worker.fetch.errors import StackError

    try:
        find_libraries()
    except StackError as error:
        _log.warning(
            "The console can't be shown before its libraries are here; they are fetched at the first request, too: %s",
            error,
        )
