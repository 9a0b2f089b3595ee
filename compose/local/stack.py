"""The detached stack behind `millrace up`, `down` and `status`: services that stay when the command ends."""

import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path

from compose.local.catalog import OFFERS, Offer, Part, Request
from compose.local.console import Say, progress, say
from compose.local.errors import StackError
from compose.local.paths import home_dir
from compose.local.ports import accepts
from compose.local.service import Service
from compose.local.state import Entry, StateFile

_DOWN_TIMEOUT = 15.0  # seconds a service may take to end by itself


class Health(StrEnum):
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

    def up(self, names: Sequence[str], brokers: int | None = None) -> list[Entry]:
        """Start the services, and those they need, that do not run; return their entries.

        Args:
            names: Services.
            brokers: Number of Kafka brokers; None for as many as there were, else one.

        Raises:
            StackError: A service could not be started; those started before it stay.
        """
        wanted = self._with_needs(names)
        state = StateFile(self.home)
        with state.locked(self.say):
            for name in wanted:
                self._start(self.offers[name], brokers, state)
            return [entry for entry in state.load() if entry.service in wanted]

    def down(self, names: Iterable[str] = (), *, remove_data: bool = False) -> list[Entry]:
        """Stop services, all when none is named, the last started first; return what was stopped.

        Args:
            names: Services.
            remove_data: Remove their folders too, including those of services that no longer run.

        Raises:
            StackError: A process could not be ended.
        """
        state = StateFile(self.home)
        chosen = set(names) or set(self.offers)
        stopped: list[Entry] = []
        with state.locked(self.say):
            entries = [entry for entry in reversed(state.load()) if entry.service in chosen]
            for service in dict.fromkeys(entry.service for entry in entries):
                stopped += self._stop([entry for entry in entries if entry.service == service], state)
            if remove_data:
                self._remove_data(chosen)
                state.forget_stopped(chosen)
        return stopped

    def status(self, names: Iterable[str] = ()) -> list[tuple[Entry, Health]]:
        """What is recorded of the services (of all when none is named), and how each process is."""
        chosen = set(names) or set(self.offers)
        return [(entry, health(entry)) for entry in StateFile(self.home).load() if entry.service in chosen]

    def addresses(self) -> dict[str, str]:
        """Addresses of the recorded services by name; several parts are joined to a comma list."""
        found: dict[str, list[str]] = {}
        for entry in StateFile(self.home).load():
            found.setdefault(entry.service, []).append(entry.address)
        return {name: ",".join(addresses) for name, addresses in found.items()}

    def _with_needs(self, names: Sequence[str]) -> list[str]:
        ordered: dict[str, None] = {}
        for name in names:
            if name not in self.offers:
                raise StackError(f"there is no service '{name}'; there are: {', '.join(self.offers)}")
            ordered |= dict.fromkeys([*self._with_needs(self.offers[name].needs), name])
        return list(ordered)

    def _start(self, offer: Offer, brokers: int | None, state: StateFile) -> None:
        previous = {entry.part: entry for entry in state.load() if entry.service == offer.name}
        healths = {part: health(entry) for part, entry in previous.items()}
        complete = previous and set(healths.values()) == {Health.RUNNING}
        if complete and (offer.name != "kafka" or brokers in {None, len(previous)}):
            self.say(f"{offer.name} already runs: {', '.join(entry.address for entry in previous.values())}")
            return
        for part, entry in previous.items():
            if healths[part] is Health.SILENT:
                raise StackError(
                    f"{offer.name} ({part}, process {entry.pid}) runs but does not answer on port {entry.port}; "
                    f"see its log {entry.log}, or stop it: millrace down {offer.name}"
                )
        stopped = {entry.part: entry for entry in state.stopped() if entry.service == offer.name}
        parts = offer.build(Request(self.home, brokers, previous, self.addresses(), self.say, stopped))
        for made in parts:
            before = (previous or stopped).get(made.name)
            if before is not None and before.port != made.port:
                self.say(f"{offer.name} ({made.name}) had port {before.port}, which is taken now; it uses {made.port}")
        self._launch(offer, parts, previous, state)

    def _launch(self, offer: Offer, parts: Sequence[Part], previous: Mapping[str, Entry], state: StateFile) -> None:
        for entry in previous.values():
            if entry.part not in {part.name for part in parts}:
                state.remove(entry)
        began = time.monotonic()
        started: list[Part] = []
        try:
            with progress(f"starting {offer.name}", self.say):
                for part in parts:
                    before = previous.get(part.name)
                    if before is not None and part.service.adopt(before.pid, before.mark):
                        continue
                    started.append(part)
                    # Written down before it is ready: a command that is killed while it waits leaves nothing unknown behind.
                    part.service.launched = partial(_record, state, offer, part)
                    part.service.launch()
                for part in started:
                    part.service.wait_ready()
        except BaseException:
            for part in started:
                part.service.kill()
            raise
        addresses = ", ".join(part.address for part in parts)
        self.say(f"{offer.name} is ready after {time.monotonic() - began:.1f} s: {addresses}")

    def _stop(self, entries: Sequence[Entry], state: StateFile) -> list[Entry]:
        stopped: list[Entry] = []
        adopted: list[tuple[Entry, Service]] = []
        for entry in entries:
            offer = self.offers.get(entry.service)
            service = Service(
                f"{entry.service} {entry.part}", (), Path(entry.log), ready=lambda: True, detached=True,
                stop_signal=signal.SIGTERM if offer is None else offer.stop_signal,
            )  # fmt: skip
            if service.adopt(entry.pid, entry.mark):
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


def health(entry: Entry) -> Health:
    """How the process is: it lives and its port accepts connections, or not. Blocks for half a second at most."""
    if not entry.alive:
        return Health.ENDED
    return Health.RUNNING if accepts(entry.port) else Health.SILENT


def _record(state: StateFile, offer: Offer, part: Part, service: Service) -> None:
    state.put(
        Entry(
            service=offer.name,
            part=part.name,
            pid=service.pid,
            mark=service.mark,
            address=part.address,
            port=part.port,
            ports=dict(part.ports),
            log=str(service.log_path),
            folders=dict(part.folders),
        )
    )
