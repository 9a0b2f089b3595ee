"""The plugins of this worker: looks at the folders of ``plugin.path`` again and again, and keeps the catalog up to date.

A change is taken over when the folder has stayed the same for a moment, so that one that is just being written is not read
half. What runs is never touched: an environment that has changed or gone stays with the processes that have it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from worker.plugins.catalog import PluginCatalog, PluginSelection
from worker.plugins.describe import describe_plugins
from worker.plugins.environments import Environment, Scan, scan_folders
from worker.plugins.isolation import own_distributions
from worker.plugins.model import Description, is_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger(__name__)
#: Seconds that a changed folder must have stayed the same.
_SETTLED_S: Final = 1.0
#: Number of checks of folders that keep changing; after that they are used in their current state.
_LOOKS: Final = 30
_START_S: Final = 15.0
#: How many environments are described at the same time.
_CHILDREN: Final = 2


class PluginWatch:
    """Knows which plugins this worker can run.

    Args:
        plugin_path: items of ``plugin.path``.
        worker: the worker's properties, resolved.
        interval_s: seconds between looks; 0: only at the start and when asked.
        changed: called when the catalog has changed; must not block.
        isolating: whether hosts with other environments can be started.

    Attributes:
        catalog: what is known now.
        pending: whether plugins of an environment are being described.
    """

    def __init__(
        self,
        plugin_path: Sequence[str],
        worker: Mapping[str, str],
        interval_s: float,
        changed: Callable[[], None],
        *,
        isolating: bool = True,
    ) -> None:
        self._path = list(plugin_path)
        self._worker = dict(worker)
        self._interval_s = interval_s
        self._changed = changed
        self._isolating = isolating
        self._own_versions: Mapping[str, str] = {}
        self._main = Description([], {})
        self._scan = Scan()
        self._looked = False
        self._described: dict[str, Description] = {}
        self._describing: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(_CHILDREN)
        self._looking = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self.catalog = PluginCatalog()

    @property
    def pending(self) -> bool:
        """Whether something is about to be known."""
        return bool(self._describing)

    @property
    def failures(self) -> dict[str, str]:
        """Return the reason for each plugin that can't be used."""
        reasons = {**self._main.failures, **self._scan.failures}
        for key, environment in self._scan.environments.items():
            described = self._described.get(key)
            if described is not None:
                reasons |= {f"{environment.name}: {value}": reason for value, reason in described.failures.items()}
        return reasons

    def skipped(self, environments: Sequence[str]) -> list[str]:
        """Entry points of environments that no process may import."""
        return sorted(
            {value for key in environments if key in self._described for value in self._described[key].failures}
        )

    def paths(self, environments: Sequence[str]) -> list[str]:
        """Return the entries of ``sys.path`` for environments.

        Raises:
            KeyError: an environment no longer exists or has changed.
        """
        return [self._scan.environments[key].path for key in environments]

    def current(self, environments: Sequence[str]) -> bool:
        """Whether all environments are there as they were."""
        return all(key in self._scan.environments for key in environments)

    def label(self, environments: Sequence[str]) -> str:
        """Environments as people call them; the fingerprints don't matter to them."""
        return "+".join(key.rpartition("@")[0] for key in environments) or "main"

    def select(self, config: Mapping[str, str]) -> PluginSelection:
        """Return the plugins and environments that a connector's configuration needs."""
        return self.catalog.select(config, self._worker)

    async def start(self, main: Description) -> None:
        """Look for the first time and begin to watch; waits some seconds for environments to be described.

        Args:
            main: the plugins of Millrace's own environment, as a task host tells of them.
        """
        self._main = main
        self._rebuild_catalog()
        if not any(map(is_folder, self._path)):
            return
        self._own_versions = await asyncio.to_thread(own_distributions)
        await self._scan_folders()
        if not await self.settled(_START_S):
            _log.warning(
                "Plugins of %s are still being looked at: connectors that need them wait",
                ", ".join(sorted(key.rpartition("@")[0] for key in self._describing)),
            )
        if self._interval_s > 0:
            self._watching = asyncio.create_task(self._watch_folders(), name="plugin-watch")

    async def stop(self) -> None:
        """End all looking; children are killed."""
        tasks = [task for task in (self._watching, *self._describing.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def refresh(self, deadline_s: float) -> bool:
        """Look now and retry failed imports. Returns whether all was described within ``deadline_s`` seconds."""
        if not any(map(is_folder, self._path)):
            return True
        for key, described in list(self._described.items()):
            if described.failures:
                del self._described[key]
        await self._scan_folders()
        return await self.settled(deadline_s)

    async def settled(self, deadline_s: float) -> bool:
        """Wait until nothing is being described; returns whether that came within ``deadline_s`` seconds."""
        describing = list(self._describing.values())
        if describing:
            await asyncio.wait(describing, timeout=deadline_s)
        return not self._describing

    def report(self) -> dict[str, Any]:
        """Return a description of the plugins for operators."""
        environments = []
        for key, environment in sorted(self._scan.environments.items()):
            described = self._described.get(key)
            plugins = [] if described is None else described.plugins
            environments.append(
                {
                    "name": environment.name,
                    "path": environment.path,
                    "fingerprint": environment.fingerprint,
                    "state": "PENDING" if described is None else "READY" if plugins else "FAILED",
                    "plugins": [
                        {"class": plugin.class_name, "type": plugin.kind, "version": plugin.version}
                        for plugin in plugins
                    ],
                }
            )
        return {"environments": environments, "failures": self.failures}

    # Looking.

    async def _watch_folders(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._scan_folders()
            except Exception:  # noqa: BLE001 - the next look may succeed; connectors continue with the known plugins
                _log.exception("Looking at plugin.path went wrong")

    async def _scan_folders(self) -> None:
        async with self._looking:
            scanned = await asyncio.to_thread(scan_folders, self._path, self._own_versions, self._scan)
            for _ in range(_LOOKS):
                if scanned.environments.keys() <= self._scan.environments.keys() or not self._looked:
                    break  # nothing new; what is there at the worker's start is complete
                await asyncio.sleep(_SETTLED_S)
                rescanned = await asyncio.to_thread(scan_folders, self._path, self._own_versions, scanned)
                if rescanned.environments.keys() == scanned.environments.keys():
                    break
                scanned = rescanned
            self._looked = True
            self._take_scan(scanned)

    def _take_scan(self, scanned: Scan) -> None:
        before, self._scan = self._scan, scanned
        for path, reason in scanned.failures.items():
            if before.failures.get(path) != reason:
                _log.error("Plugins in %s can't be used: %s", path, reason)
        for key in before.environments.keys() - scanned.environments.keys():
            _log.info("The plugin environment %s has gone or changed; what runs in it continues", key)
            self._described.pop(key, None)
            task = self._describing.pop(key, None)
            if task is not None:
                task.cancel()
        for key, environment in scanned.environments.items():
            if key not in self._described and key not in self._describing:
                task = self._describing[key] = asyncio.create_task(
                    self._describe_environment(environment), name=f"describe-{key}"
                )
                task.add_done_callback(lambda done, key=key: self._handle_finished(key, done))  # type: ignore[misc]
        if before.environments.keys() != scanned.environments.keys():
            self._rebuild_catalog()

    async def _describe_environment(self, environment: Environment) -> None:
        async with self._room:
            described = await describe_plugins(environment)
        if environment.key not in self._scan.environments:
            return
        self._described[environment.key] = described
        _log.info(
            "Plugin environment %s: %s",
            environment.name,
            ", ".join(f"{plugin.class_name} {plugin.version}" for plugin in described.plugins)
            or "no plugin that can be used",
        )
        for value, reason in described.failures.items():
            _log.error("The plugin %s of environment %s can't be used: %s", value, environment.name, reason)

    def _handle_finished(self, key: str, task: asyncio.Task[None]) -> None:
        if self._describing.get(key) is task:
            del self._describing[key]
        if not task.cancelled() and task.exception() is not None:
            _log.error("Plugin environment %s could not be looked at", key, exc_info=task.exception())
        self._rebuild_catalog()

    def _rebuild_catalog(self) -> None:
        plugins = [*self._main.plugins]
        for key in self._scan.environments:
            described = self._described.get(key)
            plugins += [] if described is None else described.plugins
        failures = {"": self._main.failures} | {
            environment.name: self._described[key].failures
            for key, environment in self._scan.environments.items()
            if key in self._described
        }
        self.catalog = PluginCatalog(
            plugins, self._scan.environments, self._own_versions, isolating=self._isolating, failures=failures
        )
        self._changed()
