"""Verifications over REST and on a schedule: one at a time of a connector, each in a process of its own, run by the leader.

What REST shows of the last one is kept in the placement topic (``worker.control.state.verifications``), and written after
each table, or each hundredth part of thousands of tables: a leader that takes over, or is started again, continues with the
tables that are not compared yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiokafka.errors import KafkaError

from connectors.api import SNAPSHOT_ENDED
from connectors.errors import ConfigInvalid, MillraceError
from worker.control.herder.base import lock_of
from worker.control.herder.offsets import read_positions
from worker.control.state.verifications import (
    INTERVAL,
    RUNNING,
    SCHEDULED,
    bounded,
    choose_sender,
    due_ms,
    metric_values,
    repair_request,
    scheduled_request,
    topics_to_repair,
    verification_record,
)
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offsets.records import Pair
    from worker.control.herder.base import HerderContext
    from worker.control.herder.snapshots import SnapshotOperations

#: Verifications at a time in a cluster: each reads whole tables and topics.
_MOST: Final = 2
#: Bytes of a line of the process.
_LINE: Final = 1 << 24
#: How long the end of a verification may take to be kept, until a new one is refused.
_END_S: Final = 5.0
#: How often the leader looks what is due.
_LOOK_S: Final = 1.0
#: A result is kept when another of this number of parts of its tables is compared.
_PARTS: Final = 100
#: The beginning of a repair's id as a snapshot.
_REPAIR: Final = "repair-"
_log: Final = logging.getLogger(__name__)


@dataclass
class VerificationRun:
    """A verification that runs here, or ended here.

    Attributes:
        body: what REST shows of it.
        term: the term of this leader in which it began.
        task: what waits for its process.
        cancelling: whether somebody ends it.
        kept: how many tables of its result Kafka has.
    """

    body: dict[str, Any]
    term: int
    task: asyncio.Task[None] | None = field(default=None)
    cancelling: bool = False
    kept: int = 0

    @property
    def busy(self) -> bool:
        """Whether it runs, or its end is still being kept."""
        return self.cancelling or (self.task is not None and not self.task.done())


class VerifyOperations:
    """``/connectors/{connector}/verify``."""

    def __init__(self, ctx: HerderContext, snapshots: SnapshotOperations) -> None:
        self.ctx = ctx
        self._snapshots = snapshots

    async def start_verification(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start to compare a connector's tables with its topics.

        Raises:
            RestError: 404, 409 if one runs already, or too many do.
        """
        await self.ctx.lead()
        await self.ctx.require_connector(name)
        before = self._current_runs().get(name)
        if before is not None and before.task is not None and before.body["state"] != RUNNING:
            await asyncio.wait([before.task], timeout=_END_S)
        run, stored = self._known_run(name), self.ctx.node.placement.verifications.summary(name)
        # One that another leader left is continued here soon.
        if run.busy if run is not None else stored is not None and stored["state"] == RUNNING:
            raise RestError(409, f"A verification of connector {name} runs already; cancel it, or wait for its end")
        if self._count_running() >= _MOST:
            raise RestError(409, f"{_MOST} verifications run already; wait for their end")
        run = self._begin_run(name, _new_body(request))
        await self._save_run(name, run)
        return self._show_body(name, run.body)

    async def verification(self, name: str) -> dict[str, Any] | None:
        """The last verification, or None."""
        await self.ctx.lead()
        await self.ctx.require_connector(name)
        run = self._known_run(name)
        body = run.body if run is not None else self.ctx.node.placement.verifications.get(name)
        return None if body is None else self._show_body(name, body)

    async def cancel_verification(self, name: str) -> None:
        """End the verification that runs, if one does."""
        await self.ctx.lead()
        await self.ctx.require_connector(name)
        run = self._known_run(name)
        if run is None:
            left = self.ctx.node.placement.verifications.get(name)
            if left is None or left["state"] != RUNNING:
                return
            # Another leader began it. Kept here, so that this one does not continue with it meanwhile.
            run = self.ctx.verifications[name] = VerificationRun(left, self.ctx.node.leader.term)
        elif not run.busy and run.body["state"] != RUNNING:
            return
        run.cancelling = True
        try:
            if run.task is not None:
                run.task.cancel()
                await asyncio.gather(run.task, return_exceptions=True)
            run.body.update(state="cancelled", ended_ms=_now_ms())
            await self._save_run(name, run)
        finally:
            run.cancelling = False

    async def repair_verified(self, name: str) -> dict[str, Any]:
        """Send again the rows that the last verification found to be missing or different: the snapshot that does it.

        Raises:
            RestError: 404, 409 while it runs or if nothing can be repaired.
        """
        body = await self.verification(name)
        if body is None:
            raise RestError(404, f"Connector {name} was not verified")
        if body["state"] == RUNNING:
            raise RestError(409, f"The verification of connector {name} still runs: wait for its end")
        request = repair_request(body["result"])
        if request is None:
            raise RestError(
                409,
                f"The last verification of connector {name} found no row that can be sent again: rows that are only on the "
                "topic are not deleted by a snapshot",
            )
        return await self._request_repair(self._find_sender(name, body["result"]), request)

    def deletion_records(self, name: str) -> list[Pair]:
        """The records that forget the verification of a connector that is being deleted."""
        stored = self.ctx.node.placement.verifications.summary(name)
        return [verification_record(name, None)] if stored is not None or name in self.ctx.verifications else []

    async def forget_verification(self, name: str) -> None:
        """End the verification of a connector that was deleted, before it can be created once more."""
        run = self.ctx.verifications.pop(name, None)
        if run is not None and run.task is not None:
            run.task.cancel()
            await asyncio.gather(run.task, return_exceptions=True)

    async def close_verifications(self) -> None:
        """End all processes; what ran is continued by the next leader."""
        watch, self.ctx.verification_watch = self.ctx.verification_watch, None
        tasks = [run.task for run in self.ctx.verifications.values() if run.task is not None]
        for task in (watch, *tasks):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self.ctx.verifications.clear()

    def watch_verifications(self) -> None:
        """Start to look for verifications that are due, or that another leader left. Does not block."""
        if self.ctx.verification_watch is None:
            self.ctx.verification_watch = asyncio.create_task(self._watch_verifications(), name="verify-watch")

    # Parts.

    def _known_run(self, name: str) -> VerificationRun | None:
        """The verification that runs here, or the last one if it ended here and Kafka has its end."""
        run = self._current_runs().get(name)
        if run is None or run.busy:
            return run
        stored = self.ctx.node.placement.verifications.summary(name)
        if stored is None or any(stored[key] != run.body[key] for key in stored):
            # Kafka lacks its end: what the topic says counts.
            del self.ctx.verifications[name]
            return None
        return run

    def _current_runs(self) -> dict[str, VerificationRun]:
        """The runs of this term. One of an earlier term is ended: the leader in between has continued or replaced it."""
        runs = self.ctx.verifications
        for name in [name for name, run in runs.items() if run.term != self.ctx.node.leader.term]:
            self._drop_run(name)
        return runs

    def _drop_run(self, name: str) -> None:
        task = self.ctx.verifications.pop(name).task
        if task is not None:
            task.cancel()

    def _count_running(self) -> int:
        return sum(run.busy for run in self._current_runs().values())

    def _show_body(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        config = self.ctx.snapshot.connectors.get(name, {})
        shown = {key: value for key, value in body.items() if key != "request"}
        return {**shown, "next_ms": due_ms(config, body, _now_ms())}

    def _begin_run(self, name: str, body: dict[str, Any]) -> VerificationRun:
        run = self.ctx.verifications[name] = VerificationRun(body, self.ctx.node.leader.term)
        run.task = asyncio.create_task(self._run_process(name, run), name=f"{name}|verify")
        return run

    async def _save_run(self, name: str, run: VerificationRun) -> None:
        # A connector that is deleted meanwhile has no verification, nor has one that is created in its place.
        async with lock_of(self.ctx.config_locks, name):
            if name not in self.ctx.snapshot.connectors:
                return
            if self._current_runs().get(name) is not run:
                raise NotLeader(None)
            await self.ctx.node.leader.write(placement=[verification_record(name, run.body)])

    async def _forget_scheduled(self, name: str) -> None:
        self.ctx.verifications.pop(name, None)
        async with lock_of(self.ctx.config_locks, name):
            if name in self.ctx.snapshot.connectors:
                await self.ctx.node.leader.write(placement=[verification_record(name, None)])

    def _find_sender(self, name: str, result: Mapping[str, Any]) -> str:
        """The connector that sends the rows again: itself, or the source of a flow's topics."""
        topics, sender = topics_to_repair(result), name
        if topics:
            state = self.ctx.node.status.state
            writers = {
                other: state.topics(other)
                for other, config in self.ctx.snapshot.connectors.items()
                if self.ctx.connector_type(config) == "source"
            }
            try:
                sender = choose_sender(topics, writers)
            except ConfigInvalid as error:
                raise RestError(409, f"Connector {name}: {error}") from None
        return sender

    async def _request_repair(self, sender: str, request: Mapping[str, Any]) -> dict[str, Any]:
        snapshot = await self._snapshots.create_snapshot(sender, {**request, "id": f"{_REPAIR}{_now_ms()}"})
        return {**snapshot, "connector": sender}

    async def _find_repair(self, sender: str) -> dict[str, Any] | None:
        """A repair that is not at its end: until then each verification finds what it is for."""
        for row in await self._snapshots.list_snapshots(sender):
            if row["id"].startswith(_REPAIR) and row["state"] not in SNAPSHOT_ENDED:
                return {**row, "connector": sender}
        return None

    async def _watch_verifications(self) -> None:
        while True:
            try:
                await self._look_at_verifications()
            except Exception as error:  # noqa: BLE001 - whatever one look meets, the next one comes
                _log.debug("what is to be verified can't be looked at now: %r", error)
            await asyncio.sleep(_LOOK_S)

    async def _look_at_verifications(self) -> None:
        """Continue what another leader left, and start what is due; a follower ends what it ran."""
        if not self.ctx.node.leader.active:
            for name in list(self.ctx.verifications):
                self._drop_run(name)
            return
        runs = self._current_runs()
        connectors = self.ctx.snapshot.connectors
        for name in runs.keys() - connectors.keys():
            self._drop_run(name)
        stored = self.ctx.node.placement.verifications
        waiting = {name for name, config in connectors.items() if config.get(INTERVAL)} | set(stored.connectors())
        # Where more are due than may run, each has its turn.
        for name in sorted(waiting & connectors.keys(), key=self._last_start_ms):
            last = self._known_run(name)
            if last is None or not last.busy:
                await self._look_at(name, connectors[name], stored.summary(name) if last is None else last.body)

    def _last_start_ms(self, name: str) -> int:
        """When a connector's last verification was started, or scheduled; 0: it had none."""
        run, stored = self.ctx.verifications.get(name), self.ctx.node.placement.verifications.summary(name)
        summary = stored if run is None else run.body
        return 0 if summary is None else int(summary["started_ms"])

    async def _look_at(self, name: str, config: Mapping[str, str], summary: Mapping[str, Any] | None) -> None:
        if summary is not None and summary["state"] == RUNNING:
            body = self.ctx.node.placement.verifications.get(name)
            if body is not None and self._count_running() < _MOST:
                self._begin_run(name, body)
            return
        due = due_ms(config, summary, _now_ms())
        if due is None:
            if summary is not None and summary["state"] == SCHEDULED:
                # The interval is gone before the first one began.
                await self._forget_scheduled(name)
            return
        if summary is None:
            run = VerificationRun(
                {**_new_body(scheduled_request(config)), "state": SCHEDULED}, self.ctx.node.leader.term
            )
            self.ctx.verifications[name] = run
            await self._save_run(name, run)
        elif due <= _now_ms() and self._count_running() < _MOST:
            await self._save_run(name, self._begin_run(name, _new_body(scheduled_request(config))))

    async def _run_process(self, name: str, run: VerificationRun) -> None:
        body = run.body
        try:
            await self._talk_to_process(name, run)
        except (RestError, MillraceError, OSError, ValueError) as error:
            body.update(state="failed", error=str(error))
        body["ended_ms"] = _now_ms()
        try:
            await self._save_run(name, run)
            if body["state"] == "completed" and body["request"].get("repair"):
                request = repair_request(body["result"])
                if request is not None:
                    body.update(await self._repair_rows(name, body["result"], request))
                    await self._save_run(name, run)
        except (RestError, MillraceError, KafkaError) as error:
            _log.warning("Connector %s: the end of its verification could not be kept: %s", name, error)

    async def _repair_rows(self, name: str, result: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for the snapshot; returns what is said of it."""
        try:
            sender = self._find_sender(name, result)
            asked = await self._find_repair(sender) or await self._request_repair(sender, request)
        except RestError as error:
            return {"error": f"The rows that differ were not sent again: {error}"}
        return {"repair": asked["id"], "repair_connector": asked["connector"]}

    async def _talk_to_process(self, name: str, run: VerificationRun) -> None:
        # Removed here: a process that is killed removes nothing.
        folder = tempfile.mkdtemp(prefix="millrace-verify-")
        try:
            await self._run_in_folder(name, run, folder)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _run_in_folder(self, name: str, run: VerificationRun, folder: str) -> None:
        body = run.body
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "worker.verify.process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE,
            start_new_session=True,
        )
        try:
            if process.stdin is None or process.stdout is None:
                raise OSError("the process has no pipes")
            first = {
                **body["request"],
                "done": [table["table"] for table in (body["result"] or {"tables": ()})["tables"]],
                "folder": folder,
                "connector": dict(self.ctx.snapshot.connectors[name]),
                "worker": dict(self.ctx.properties),
            }
            process.stdin.write(orjson.dumps(first) + b"\n")
            async for line in process.stdout:
                message = orjson.loads(line)
                if "ask" in message:
                    offsets = [
                        {"partition": partition, "offset": offset}
                        for partition, offset in await read_positions(self.ctx, name)
                    ]
                    process.stdin.write(orjson.dumps({"offsets": offsets}) + b"\n")
                else:
                    await self._handle_message(name, run, message)
            if body["state"] == RUNNING:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _END_S)
                body.update(
                    state="failed",
                    error=f"The process that compared ended (exit code {process.returncode}); see the worker's memory and its "
                    "standard error",
                )
        finally:
            with contextlib.suppress(ProcessLookupError):
                # With what it has started itself.
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _handle_message(self, name: str, run: VerificationRun, message: Mapping[str, Any]) -> None:
        """Take what the process says, but a question."""
        body = run.body
        if "progress" in message:
            body["progress"] = message["progress"]
        elif "tables" in message:
            body["result"] = body["result"] or {"equal": True, "notes": [], "tables": []}
            body["tables_total"] = len(message["tables"])
        elif "table" in message:
            result = body["result"]
            result["tables"].append(bounded(message["table"], result["tables"]))
            noted = set(result["notes"])
            result["notes"] += [note for note in message["notes"] if note not in noted]
            result["equal"] = all(table["equal"] for table in result["tables"])
            # A record has all tables: after each of thousands it would be too much.
            if len(result["tables"]) - run.kept >= max(1, len(result["tables"]) // _PARTS):
                await self._save_run(name, run)
                run.kept = len(result["tables"])
        elif "completed" in message:
            body["state"] = "completed"
        else:
            body.update(state="failed", error=message["error"])


def _new_body(request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "state": RUNNING,
        "started_ms": _now_ms(),
        "ended_ms": None,
        "tables": request["tables"],
        "tables_total": None,
        "progress": "",
        "error": None,
        "result": None,
        "repair": None,
        "repair_connector": None,
        "request": dict(request),
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def verify_numbers(ctx: HerderContext) -> dict[str, dict[str, float]]:
    """Values of metrics by connector; none on a follower."""
    if not ctx.node.leader.active:
        return {}
    running = {name: metric_values(run.body) for name, run in ctx.verifications.items()}
    return {**ctx.node.placement.verifications.numbers(), **running}
