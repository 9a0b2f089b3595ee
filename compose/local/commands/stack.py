"""The detached stack behind `millrace up`, `down` and `status`: services that stay when the command ends."""

import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path

from compose.local.commands.catalog import OFFERS, Offer, ServicePart, ServiceRequest
from compose.local.commands.state import StackEntry, StateFile
from compose.local.ports import accepts_connections
from compose.local.process.service import Service
from worker.fetch.errors import StackError
from worker.fetch.paths import home_dir
from worker.terminal import Say, progress, say

_DOWN_TIMEOUT = 15.0  # seconds a service may take to end before it is killed


class ProcessHealth(StrEnum):
    """State of a recorded process."""

    RUNNING = "running"
    SILENT = "not answering"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Stack:
    """A set of detached services and the file that remembers them.

    Commands may be repeated: what runs is left alone, what ended or was stopped is started again on its ports (or it is said
    that one is taken), and nothing is ever stopped that this stack did not start. All methods block.

    Attributes:
        home: Folder of the state file and of the services' data.
        say: Where progress lines go.
        offers: What can be started.
    """

    home: Path = field(default_factory=home_dir)
    say: Say = say
    offers: Mapping[str, Offer] = field(default_factory=lambda: OFFERS)

    def up(self, names: Sequence[str], brokers: int | None = None) -> list[StackEntry]:
        """Start the services, and those they need, that do not run; return their entries.

        Args:
            names: Services.
            brokers: Number of Kafka brokers; None for as many as there were, else one.

        Raises:
            StackError: A service could not be started; those started before it stay.
        """
        requested = self._with_needs(names)
        state = StateFile(self.home)
        with state.locked(self.say):
            for name in requested:
                self._start_service(self.offers[name], brokers, state)
            return [entry for entry in state.load() if entry.service in requested]

    def down(self, names: Iterable[str] = (), *, remove_data: bool = False) -> list[StackEntry]:
        """Stop services, all when none is named, the last started first; return what was stopped.

        Args:
            names: Services.
            remove_data: Remove their folders too, including those of services that no longer run.

        Raises:
            StackError: A process could not be ended.
        """
        state = StateFile(self.home)
        chosen = set(names) or set(self.offers)
        stopped: list[StackEntry] = []
        with state.locked(self.say):
            entries = [entry for entry in reversed(state.load()) if entry.service in chosen]
            for service in dict.fromkeys(entry.service for entry in entries):
                stopped += self._stop_entries([entry for entry in entries if entry.service == service], state)
            if remove_data:
                self._remove_data(chosen)
                state.forget_stopped(chosen)
        return stopped

    def status(self, names: Iterable[str] = ()) -> list[tuple[StackEntry, ProcessHealth]]:
        """The recorded entries of the services (of all if none is named), and the health of each process."""
        chosen = set(names) or set(self.offers)
        return [(entry, check_health(entry)) for entry in StateFile(self.home).load() if entry.service in chosen]

    def addresses(self) -> dict[str, str]:
        """Addresses of the recorded services by name; several parts are joined to a comma list."""
        addresses_by_service: dict[str, list[str]] = {}
        for entry in StateFile(self.home).load():
            addresses_by_service.setdefault(entry.service, []).append(entry.address)
        return {name: ",".join(addresses) for name, addresses in addresses_by_service.items()}

    def _with_needs(self, names: Sequence[str]) -> list[str]:
        ordered: dict[str, None] = {}
        for name in names:
            if name not in self.offers:
                raise StackError(f"there is no service '{name}'; there are: {', '.join(self.offers)}")
            ordered |= dict.fromkeys([*self._with_needs(self.offers[name].needs), name])
        return list(ordered)

    def _start_service(self, offer: Offer, brokers: int | None, state: StateFile) -> None:
        previous = {entry.part: entry for entry in state.load() if entry.service == offer.name}
        healths = {part: check_health(entry) for part, entry in previous.items()}
        complete = previous and set(healths.values()) == {ProcessHealth.RUNNING}
        if complete and (offer.name != "kafka" or brokers in {None, len(previous)}):
            self.say(f"{offer.name} already runs: {', '.join(entry.address for entry in previous.values())}")
            return
        for part, entry in previous.items():
            if healths[part] is ProcessHealth.SILENT:
                raise StackError(
                    f"{offer.name} ({part}, process {entry.pid}) runs but does not answer on port {entry.port}; "
                    f"see its log {entry.log}, or stop it: millrace down {offer.name}"
                )
        stopped = {entry.part: entry for entry in state.stopped() if entry.service == offer.name}
        parts = offer.build(ServiceRequest(self.home, brokers, previous, self.addresses(), self.say, stopped))
        for new_part in parts:
            before = (previous or stopped).get(new_part.name)
            if before is not None and before.port != new_part.port:
                self.say(
                    f"{offer.name} ({new_part.name}) had port {before.port}, which is taken now; it uses {new_part.port}"
                )
        self._launch_parts(offer, parts, previous, state)

    def _launch_parts(
        self, offer: Offer, parts: Sequence[ServicePart], previous: Mapping[str, StackEntry], state: StateFile
    ) -> None:
        for entry in previous.values():
            if entry.part not in {part.name for part in parts}:
                state.remove(entry)
        began = time.monotonic()
        started: list[ServicePart] = []
        try:
            with progress(f"starting {offer.name}", self.say):
                for part in parts:
                    before = previous.get(part.name)
                    if before is not None and part.service.adopt(before.pid, before.start_mark):
                        continue
                    started.append(part)
                    # Written down before it is ready: a command that is killed while it waits leaves nothing unknown behind.
                    part.service.launched = partial(_record_part, state, offer, part)
                    part.service.launch()
                for part in started:
                    part.service.wait_ready()
        except BaseException:
            for part in started:
                part.service.kill()
            raise
        addresses = ", ".join(part.address for part in parts)
        self.say(f"{offer.name} is ready after {time.monotonic() - began:.1f} s: {addresses}")

    def _stop_entries(self, entries: Sequence[StackEntry], state: StateFile) -> list[StackEntry]:
        stopped: list[StackEntry] = []
        adopted: list[tuple[StackEntry, Service]] = []
        for entry in entries:
            offer = self.offers.get(entry.service)
            service = Service(
                f"{entry.service} {entry.part}", (), Path(entry.log), ready=lambda: True, detached=True,
                stop_signal=signal.SIGTERM if offer is None else offer.stop_signal,
            )  # fmt: skip
            if service.adopt(entry.pid, entry.start_mark):
                service.terminate()
                adopted.append((entry, service))
            else:
                state.remove(entry, keep_ports=True)  # it ended long ago, or the machine was started again
        for entry, service in adopted:
            with progress(f"stopping {entry.service} ({entry.part})", self.say):
                service.wait_stopped(_DOWN_TIMEOUT)
            if service.running:
                raise StackError(
                    f"{entry.service} ({entry.part}), process {entry.pid}, cannot be ended; it may belong to another user"
                )
            state.remove(entry, keep_ports=True)
            stopped.append(entry)
        return stopped

    def _remove_data(self, names: Iterable[str]) -> None:
        for name in names:
            for folder in (self.home / name, *self.home.glob(f"{name}-[0-9]*")):
                if folder.is_dir():
                    self.say(f"removing {folder}")
                    shutil.rmtree(folder)


def check_health(entry: StackEntry) -> ProcessHealth:
    """How the process is: it lives and its port accepts connections, or not. Blocks for half a second at most."""
    if not entry.alive:
        return ProcessHealth.ENDED
    return ProcessHealth.RUNNING if accepts_connections(entry.port) else ProcessHealth.SILENT


def _record_part(state: StateFile, offer: Offer, part: ServicePart, service: Service) -> None:
    state.put(
        StackEntry(
            service=offer.name,
            part=part.name,
            pid=service.pid,
            start_mark=service.start_mark,
            address=part.address,
            port=part.port,
            ports=dict(part.ports),
            log=str(service.log_path),
            folders=dict(part.folders),
        )
    )
