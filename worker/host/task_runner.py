"""A task's life in a host: states, automatic restarts, pause, and a stop that always ends."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

import orjson

from connectors.errors import ConfigInvalid, Fenced, MillraceError
from connectors.job_api import JobProgress
from worker.host.delivery.exactly_once import TransactionalSession
from worker.host.delivery.producer_errors import TopicRecreated
from worker.host.delivery.session import TaskSession
from worker.host.errors import RestartPolicy
from worker.host.job import JobPlan, JobSession
from worker.host.options import CONNECTOR
from worker.host.plan import TaskPlan
from worker.protocol import TaskStateChanged, TaskStats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from worker.protocol import HostMessage, StartTask

log = logging.getLogger(__name__)

#: Seconds after the deadline of a stop in which the runner itself must have ended.
_MARGIN_S: Final = 1.0
_CAUSED_BY: Final = "\nCaused by: "
#: Characters of a trace: Kafka takes a status of 1 MB, in which a character may have up to six bytes.
_LONGEST_TRACE: Final = 100_000
#: What a killed host asked of Kafka may arrive late and fence its successor, which has to start again. Who really has a
#: successor is stopped, or waits for its lease; two clusters that share transactional ids must not fence each other forever.
#: A task whose topic was recreated has to start again, too: with the topic as it is now.
_FENCED: Final[Mapping[str, Any]] = {
    "errors.restart.policy": "always",
    "errors.restart.max.attempts": 3,
    "errors.restart.delay.ms": 1000,
    "errors.restart.max.delay.ms": 10_000,
    "errors.restart.reset.ms": 60_000,
}
#: How many errors a trace names at its top.
_CAUSES: Final = 10


def masked_trace(error: BaseException, scrub: Callable[[str], str]) -> str:
    """``error`` and what caused it, a line each, then the full Python traceback, or that of another process; without secrets.

    The lines at the top are as in Java's traces: clients show people the first line alone, or what follows "Caused by:".
    Redpanda Console takes the first cause for the reason, so a cause without a message is only in the traceback.
    """
    trace = error.trace if isinstance(error, MillraceError) else None
    if not trace:
        trace = "".join(traceback.format_exception(error))
    first, *causes = _list_causes(error)
    top = _CAUSED_BY.join([_name_error(first), *(_name_error(cause) for cause in causes if str(cause).strip())])
    shown = scrub(f"{top}\n\n{trace.strip()}\n")
    if len(shown) > _LONGEST_TRACE:
        shown = f"{shown[:_LONGEST_TRACE]}\n(cut: it has {len(shown)} characters)\n"
    # A name of a file, for example, may hold bytes that are no UTF-8: neither the pipe nor the topic takes those.
    return shown.encode("utf-8", "backslashreplace").decode()


def _list_causes(error: BaseException) -> list[BaseException]:
    errors = [error]
    while (cause := errors[-1].__cause__) is not None and cause not in errors and len(errors) < _CAUSES:
        errors.append(cause)
    return errors


def _name_error(error: BaseException) -> str:
    first, *further_lines = (str(error).strip() or "no details were given").split("\n")
    # Redpanda Console takes lines that end so for places in a program, and drops them.
    if first.endswith((")", "exception")):
        first += "."
    return "\n".join([f"{type(error).__name__}: {first}", *further_lines])


class TaskRunner:
    """Runs one task until it is stopped, and reports what becomes of it.

    Args:
        start: the message that asks for it.
        make_plan: makes the plan of a run; secrets are resolved there.
        event: sends an event to the control process.
        scrub: removes secrets from a string.
    """

    def __init__(
        self,
        start: StartTask,
        make_plan: Callable[[], Awaitable[TaskPlan | JobPlan]],
        event: Callable[[HostMessage], None],
        scrub: Callable[[str], str],
    ) -> None:
        self.id = start.id
        self._generation = start.generation
        self._make_plan = make_plan
        self._event = event
        self._scrub = scrub
        self.stats = TaskStats(start.id, connector_class=start.connector_config.get("connector.class", ""))
        self._state = "UNASSIGNED"
        self._state_since = time.monotonic()
        self._resumed = asyncio.Event()
        if not start.paused:
            self._resumed.set()
        self._session: TaskSession | JobSession | None = None
        self._plan: TaskPlan | JobPlan | None = None
        self._active_topics: set[str] = set()
        self._instructions: list[dict[str, Any]] = orjson.loads(start.instructions)
        self._policy = _restart_policy(start.connector_config)
        self._fenced_policy = RestartPolicy(_FENCED)
        self._runner: asyncio.Task[None] | None = None
        self._running_once: asyncio.Task[None] | None = None
        self._restart_requested = False
        self._reload = start.connector_config.get("config.action.reload")

    def start(self) -> None:
        """Begin; does not block."""
        self._runner = asyncio.create_task(self._run_loop(), name=f"{self.id}|runner")

    async def stop(self, deadline_s: float) -> bool:
        """Stop within about ``deadline_s`` seconds whatever the task does.

        Returns:
            True if it ended, False if it had to be abandoned: what it still produces is dropped.
        """
        runner, session = self._runner, self._session
        if runner is None:
            return True
        ended = True
        if not runner.done():
            if session is not None:
                session.stop(asyncio.get_running_loop().time() + deadline_s)
            runner.cancel()
            await asyncio.wait({runner}, timeout=deadline_s + _MARGIN_S)
            ended = runner.done()
            if not ended and session is not None:
                log.error("%s: the task did not end within %.1f s and is abandoned", self.id, deadline_s)
                await session.abandon()
        if session is not None and session.abandoned:
            ended = False
        self._enter_state("STOPPED")
        return ended

    def pause(self, *, paused: bool) -> None:
        """Pause or resume; a failed task stays failed."""
        if paused == (not self._resumed.is_set()):
            return
        if paused:
            self._resumed.clear()
        else:
            self._resumed.set()
        if isinstance(self._session, JobSession):
            self._session.wake()  # the session itself reports when its job has stopped, and when it runs again
        elif self._state in {"RUNNING", "PAUSED"}:
            self._enter_state("PAUSED" if paused else "RUNNING")

    def instruct(self, instructions: bytes) -> None:
        """Give the task the operator's standing requests (a JSON list), now and whenever it starts again."""
        self._instructions = orjson.loads(instructions)
        if isinstance(self._session, TaskSession):
            self._session.instruct(self._instructions)

    def forget_topic(self, topic: str) -> None:
        """Report this topic again as active when the task next uses it."""
        self._active_topics.discard(topic)

    async def secrets_changed(self, config: Mapping[str, str], names: frozenset[str]) -> None:
        """Take new values of config providers: where possible without a break, else as ``config.action.reload`` says.

        Args:
            config: the task's configuration, resolved again.
            names: of what has changed in it; none where the worker's own properties have changed.
        """
        plan, session, running = self._plan, self._session, self._running_once
        if plan is None or running is None:
            return
        if isinstance(plan, JobPlan):
            left: tuple[str, ...] = tuple(sorted(names))
        else:
            renewal = await asyncio.to_thread(plan.renew, config, names)
            left = renewal.left
            if renewal.clients and isinstance(session, TaskSession) and session.producer is not None:
                session.producer.credentials_changed()
            if renewal.renewed and isinstance(session, TaskSession):
                session.secrets_changed(renewal.renewed)
        reload = (self._reload or "").strip().lower()
        if names and reload == "restart":
            left = tuple(sorted(names))
        if not left:
            log.info(
                "%s: new values of %s are used from the next connection on",
                self.id,
                ", ".join(sorted(names)) or "the worker's secrets",
            )
        elif reload == "none":
            log.warning(
                "%s: new values of %s are not taken over before the task's next start (config.action.reload=none)",
                self.id,
                ", ".join(left),
            )
        else:
            log.info("%s: the task starts again to take over new values of %s", self.id, ", ".join(left))
            if running.done():
                return  # it ended meanwhile: its next start has the new values
            self._restart_requested = True
            running.cancel()

    def report(self) -> TaskStats:
        """Return the current numbers; ``reported`` resets the ``_max`` fields."""
        self._account_time()
        stats = self.stats
        if self._session is not None:
            self._session.refresh_stats()
        if isinstance(self._plan, TaskPlan):
            stats.custom = self._plan.metrics.report()
            stats.series_folded = self._plan.metrics.folded
        return stats

    def reported(self) -> None:
        """Reset the fields that cover the time since the last report; called when a report was sent."""
        stats = self.stats
        stats.active_max = stats.active
        stats.poll_s_max = stats.commit_s_max = 0.0
        stats.batch_size_max = 0

    async def _run_loop(self) -> None:
        while True:
            began = time.monotonic()
            running = self._running_once = asyncio.create_task(self._run_once(), name=f"{self.id}|run")
            try:
                await running
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if not self._restart_requested or current is None or current.cancelling():
                    raise
                self._restart_requested = False
                self._count_session()
            except Exception as error:  # noqa: BLE001 - whatever it is fails the task, and nothing else
                trace = masked_trace(error, self._scrub)
                self._count_session()
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    # The failed run took the cancellation: the task would start again, unknown to its host.
                    log.warning("%s: the task failed while it was stopped\n%s", self.id, trace)
                    return
                delay = self._choose_delay(error, time.monotonic() - began)
                self.stats.last_error_ms = int(time.time() * 1000)
                if self.stats.job is not None:
                    self.stats.job.phase, self.stats.job.error = "failed", self._scrub(f"{error}".partition("\n")[0])
                if delay is None:
                    # Not log.exception: the trace is in the message, masked.
                    log.error("%s: the task failed and won't start again automatically\n%s", self.id, trace)  # noqa: TRY400
                    self._enter_state("FAILED", trace)
                    return
                log.warning("%s: the task failed and starts again in %.1f s\n%s", self.id, delay, trace)
                self.stats.restarts += 1
                self._enter_state("RESTARTING", trace)
                await asyncio.sleep(delay)
            finally:
                self._running_once = None

    def _choose_delay(self, error: Exception, ran_s: float) -> float | None:
        """Seconds until the task starts again after a run of ``ran_s`` seconds, or None to stay FAILED."""
        if not isinstance(error, Fenced | TopicRecreated):
            return self._policy.delay(ran_s)
        # A job's other run was started on purpose.
        return self._fenced_policy.delay(ran_s) if isinstance(self._plan, TaskPlan) else None

    async def _run_once(self) -> None:
        plan = self._plan = await self._make_plan()
        plan.active_topics = self._active_topics
        self.stats.connector_version = plan.version
        for warning in plan.warnings:
            log.warning("%s: %s", self.id, warning)
        self.stats.started_at = time.time()
        session: TaskSession | JobSession
        if isinstance(plan, JobPlan):
            session = JobSession(plan, self.stats, self.stats.job or JobProgress(), self._job_state)
        else:
            session = (TransactionalSession if plan.boundary else TaskSession)(plan, self.stats, self._enter_running)
            session.instruct(self._instructions)
        self._session = session
        session.resumed = self._resumed
        await session.run()

    def _count_session(self) -> None:
        if self._session is not None:
            self._session.refresh_stats()
            self.stats.active = 0

    def _enter_running(self) -> None:
        self._enter_state("RUNNING" if self._resumed.is_set() else "PAUSED")

    def _job_state(self, state: str, error: BaseException | None) -> None:
        self._enter_state(state, None if error is None else masked_trace(error, self._scrub))

    def _account_time(self) -> None:
        now = time.monotonic()
        spent, self._state_since = now - self._state_since, now
        if self._state == "RUNNING":
            self.stats.running_s += spent
        elif self._state == "PAUSED":
            self.stats.paused_s += spent

    def _enter_state(self, state: str, trace: str | None = None) -> None:
        self._account_time()
        self._state = self.stats.state = state
        self._event(TaskStateChanged(self.id, state, self._generation, trace))


def _restart_policy(config: Mapping[str, str]) -> RestartPolicy:
    """Return the restart policy, even if another option is invalid: that option fails the task elsewhere."""
    own_options = {name: value for name, value in config.items() if name.startswith("errors.restart.")}
    try:
        return RestartPolicy(CONNECTOR.parse(own_options))
    except ConfigInvalid:
        return RestartPolicy(CONNECTOR.parse({}))
