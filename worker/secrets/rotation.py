"""Values of config providers over time: read in threads, kept while a provider is unavailable, and watched for changes.

One ``SecretKeeper`` per process. Code that resolves a configuration may watch it: it is called when values behind its
references have changed. A value is read again when most of its time to live is over, when its provider reports a change, and
otherwise at a fixed interval.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType, Importance, at_least
from worker.secrets.providers import ConfigData, find_references, has_references, replace_references

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from worker.secrets.providers import ConfigProvider

_log = logging.getLogger(__name__)

#: After this share of a value's time to live it is asked for again.
_SHARE: Final = 0.8
_SHORTEST_S: Final = 0.2
#: A value without a time to live that has changed must still be the same after so long: a file may be half written.
_SETTLE_S: Final = 0.2
#: After a failed look the next one comes this soon at the latest.
_RETRY_S: Final = 5.0
#: Paths that are remembered at a time; beyond it those without a watcher are forgotten.
_MOST_PATHS: Final = 1000

#: Options of the worker.
OPTIONS: Final = ConfigDef(
    [
        ConfigKey(
            name="config.providers.refresh.interval.ms",
            type=ConfigType.LONG,
            default=10_000,
            unit="ms",
            validator=at_least(0),
            importance=Importance.LOW,
            group="Converters and plugins",
            doc="How often values of config providers that come without a time to live (files) are looked at, to take over "
            "new ones while connectors run. 0 for never: then they are read at each start.",
        ),
        ConfigKey(
            name="config.providers.timeout.ms",
            type=ConfigType.LONG,
            default=15_000,
            unit="ms",
            validator=at_least(100),
            importance=Importance.LOW,
            group="Converters and plugins",
            doc="How long a config provider may take to answer. Then the values that it gave before are used on.",
        ),
    ]
)

SecretPath = tuple[str, str]


class Unanswered(Retriable):
    """A config provider is unavailable or too slow, and there is no earlier value to continue with."""


@dataclass(slots=True)
class _CachedPath:
    """The last values of one path of one provider; ``keys`` are those that it was last asked for."""

    keys: set[str]
    values: dict[str, str] = field(default_factory=dict)
    #: Monotonic time at which to look again; None: never.
    due: float | None = 0.0
    #: Until when the values need not be asked for at all.
    fresh_until: float = 0.0
    failing: bool = False
    unsubscribe: Callable[[], None] | None = None
    #: The keys that ``unsubscribe`` is for.
    subscribed: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class SecretWatch:
    """A configuration that is followed.

    Attributes:
        config: with its references.
        resolved: as it was last resolved.
        changed: called on the event loop with the configuration, resolved again, and the names of the options that differ.
    """

    config: dict[str, str]
    resolved: dict[str, str]
    changed: Callable[[dict[str, str], frozenset[str]], Awaitable[None]]


class SecretKeeper:
    """Asks config providers, remembers their values, and reports changes.

    Args:
        providers: by the names that references use.
        on_value: called with every value that was found, so that it is masked from then on.
        interval_s: how often values without a time to live are looked at; 0 for never.
        deadline_s: how long a provider may take.

    Attributes:
        failures: how often asking a provider failed, by its name.
    """

    def __init__(
        self,
        providers: Mapping[str, ConfigProvider],
        on_value: Callable[[str], None],
        interval_s: float = 10.0,
        deadline_s: float = 15.0,
    ) -> None:
        self._providers = dict(providers)
        self._on_value = on_value
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._cached_paths: dict[SecretPath, _CachedPath] = {}
        self._watches: dict[object, SecretWatch] = {}
        #: Paths of configurations that are just being resolved.
        self._resolving: list[frozenset[SecretPath]] = []
        self._busy: dict[str, asyncio.Future[Any]] = {}
        self._looking = asyncio.Lock()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.failures: dict[str, int] = dict.fromkeys(self._providers, 0)

    @property
    def stale(self) -> dict[str, int]:
        """How many paths of each provider are used with values that could not be asked for again."""
        result = dict.fromkeys(self._providers, 0)
        for (provider, _), cached in self._cached_paths.items():
            result[provider] += cached.failing
        return result

    def start(self) -> None:
        """Begin to follow what is watched."""
        if self._providers and self._task is None:
            self._task = asyncio.create_task(self._follow_paths(), name="config-providers")

    async def close(self) -> None:
        """End, and close the providers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for cached in self._cached_paths.values():
            if cached.unsubscribe is not None:
                cached.unsubscribe()
        for name, provider in self._providers.items():
            with contextlib.suppress(Exception):
                await self._in_thread(name, provider.close)

    # Resolving.

    async def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """``config`` with references resolved; those to unknown providers or keys stay.

        Raises:
            ConfigInvalid: a provider can't give what is asked for.
            Unanswered: a provider is unavailable, and never returned these values.
        """
        keys_by_path = self._keys_by_path(config)
        asked_paths = frozenset(keys_by_path)
        self._resolving.append(asked_paths)
        try:
            for secret_path, keys in keys_by_path.items():
                cached = self._cached_paths.setdefault(secret_path, _CachedPath(set()))
                if not keys <= cached.keys or time.monotonic() >= cached.fresh_until:
                    await self._refresh_path(secret_path, cached, keys, first=not keys <= cached.values.keys())
            resolved = self._put_values(config)
        finally:
            self._resolving.remove(asked_paths)
        if len(self._cached_paths) > _MOST_PATHS:
            self._forget_unused(keys_by_path)
        return resolved

    def watch(
        self,
        owner: object,
        config: Mapping[str, str],
        resolved: Mapping[str, str],
        changed: Callable[[dict[str, str], frozenset[str]], Awaitable[None]],
    ) -> bool:
        """Follow a configuration on behalf of ``owner``, in place of what it followed before; True if there is anything to.

        Args:
            owner: whoever ``unwatch`` is called for.
            config: with its references.
            resolved: as ``resolve`` gave it.
            changed: see ``SecretWatch``.
        """
        if not self._keys_by_path(config):
            self.unwatch(owner)
            return False
        self._watches[owner] = SecretWatch(dict(config), dict(resolved), changed)
        for secret_path in self._keys_by_path(config):
            # It may have been forgotten since it was resolved, when all others that follow it left.
            self._cached_paths.setdefault(secret_path, _CachedPath(set()))
        self._wake.set()
        return True

    def unwatch(self, owner: object) -> None:
        """Stop following a configuration; paths without a watcher are no longer requested."""
        if self._watches.pop(owner, None) is not None:
            self._forget_unused(())

    def _forget_unused(self, but: Iterable[SecretPath]) -> None:
        used = self._followed_paths().union(but, *self._resolving)
        for secret_path in [secret_path for secret_path in self._cached_paths if secret_path not in used]:
            cached = self._cached_paths.pop(secret_path)
            if cached.unsubscribe is not None:
                cached.unsubscribe()

    def _followed_paths(self) -> set[SecretPath]:
        return {secret_path for watch in self._watches.values() for secret_path in self._keys_by_path(watch.config)}

    async def refresh(self, owner: object) -> bool:
        """Look at what ``owner`` follows now, and tell it of changes; whether there were any."""
        watch = self._watches.get(owner)
        if watch is None:
            return False
        before = watch.resolved
        for secret_path in self._keys_by_path(watch.config):
            cached = self._cached_paths.get(secret_path)
            if cached is not None:
                await self._refresh_path(secret_path, cached)
        await self._tell_watches()
        return watch.resolved != before

    def _keys_by_path(self, config: Mapping[str, str]) -> dict[SecretPath, set[str]]:
        keys_by_path: dict[SecretPath, set[str]] = {}
        for value in config.values():
            if has_references(value):
                for provider, path, key in find_references(value):
                    if provider in self._providers:
                        keys_by_path.setdefault((provider, path), set()).add(key)
        return keys_by_path

    def _is_known(self, config: Mapping[str, str]) -> bool:
        """Whether all that a configuration refers to has been asked for."""
        return all(
            (cached := self._cached_paths.get(secret_path)) is not None
            and (keys <= cached.keys or keys <= cached.values.keys())
            for secret_path, keys in self._keys_by_path(config).items()
        )

    def _put_values(self, config: Mapping[str, str]) -> dict[str, str]:
        data_by_path = {secret_path: cached.values for secret_path, cached in self._cached_paths.items()}
        return {
            name: replace_references(value, data_by_path) if has_references(value) else value
            for name, value in config.items()
        }

    # Looking.

    async def _refresh_path(
        self, secret_path: SecretPath, cached: _CachedPath, keys: Collection[str] = (), *, first: bool = False
    ) -> None:
        """Ask for the keys of one path that are followed, and for ``keys``; others may be gone since they were asked for.

        After a failure the earlier values hold; without any, the failure is raised.
        """
        name, path = secret_path
        now = time.monotonic()
        needed = {
            key for watch in self._watches.values() for key in self._keys_by_path(watch.config).get(secret_path, ())
        }.union(keys)
        try:
            data = await self._get_data(name, path, needed)
            if data.ttl is None and cached.values and dict(data.data) != _part_of(cached.values, needed):
                await asyncio.sleep(_SETTLE_S)
                second = await self._get_data(name, path, needed)
                if dict(second.data) != dict(data.data):
                    if first:
                        raise Unanswered(f"{name} is just changing {path!r}")  # noqa: TRY301 - a failure as others
                    cached.due = now + _SETTLE_S
                    return
            _require_values(_part_of(cached.values, needed), data.data)
        except Exception as error:
            self.failures[name] += 1
            cached.due = now + min(_RETRY_S, self._interval_s or _RETRY_S)
            if first or not cached.values:
                raise
            if not cached.failing:
                _log.warning(
                    "Config provider %s gives no values of %r now, the last ones are used on: %s", name, path, error
                )
            cached.failing = True
            return
        if cached.failing:
            _log.info("Config provider %s gives values of %r again", name, path)
        cached.failing = False
        cached.keys = needed
        # A configuration that is resolved already and is about to be followed keeps its values.
        cached.values |= data.data
        for value in data.data.values():
            self._on_value(value)
        if data.ttl is not None and data.ttl >= 0:
            cached.due = cached.fresh_until = now + max(_SHORTEST_S, data.ttl / 1000 * _SHARE)
        else:
            cached.due = now + self._interval_s if self._interval_s else None
            cached.fresh_until = 0.0
        if cached.unsubscribe is None or not needed <= cached.subscribed:
            self._subscribe_path(secret_path, cached)

    def _subscribe_path(self, secret_path: SecretPath, cached: _CachedPath) -> None:
        """Subscribe to all keys of a path that are followed, in place of an earlier subscription to fewer of them."""
        loop = asyncio.get_running_loop()

        def expire_cached() -> None:
            cached.due = cached.fresh_until = 0.0
            self._wake.set()

        def changed() -> None:
            loop.call_soon_threadsafe(expire_cached)

        earlier = cached.unsubscribe
        cached.subscribed = set(cached.keys)
        cached.unsubscribe = self._providers[secret_path[0]].subscribe(secret_path[1], frozenset(cached.keys), changed)
        if earlier is not None:
            earlier()

    async def _get_data(self, name: str, path: str, keys: set[str]) -> ConfigData:
        asked = frozenset(keys)
        provider_data: ConfigData = await self._in_thread(name, lambda: self._providers[name].get(path, asked))
        return provider_data

    async def _in_thread(self, name: str, call: Callable[[], Any]) -> Any:
        """Run ``call`` in a thread; one at a time for each provider, so that one that hangs takes one thread."""
        before = self._busy.get(name)
        deadline = time.monotonic() + self._deadline_s
        while before is not None and not before.done():
            await asyncio.wait({before}, timeout=max(0.0, deadline - time.monotonic()))
            if not before.done() and time.monotonic() >= deadline:
                raise Unanswered(
                    f"config provider {name} has not answered an earlier question for {self._deadline_s:g} s"
                )
            before = self._busy.get(name)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._busy[name] = answer

        def settle(value: Any, error: BaseException | None) -> None:
            if not answer.done():
                if error is None:
                    answer.set_result(value)
                else:
                    answer.set_exception(error)

        def run() -> None:
            value, failure = None, None
            try:
                value = call()
            except BaseException as error:  # noqa: BLE001 - a plugin's code may fail in any way; the caller gets the error
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, value, failure)

        threading.Thread(target=run, name=f"provider-{name}", daemon=True).start()
        done, _ = await asyncio.wait({answer}, timeout=self._deadline_s)
        if not done:
            answer.add_done_callback(lambda late: late.exception())  # no caller waits for it any more
            raise Unanswered(
                f"config provider {name} did not answer within {self._deadline_s:g} s (config.providers.timeout.ms)"
            )
        return answer.result()

    # Following.

    async def _follow_paths(self) -> None:
        while True:
            self._wake.clear()
            now = time.monotonic()
            followed = self._followed_paths()
            for secret_path in followed:
                cached = self._cached_paths.get(secret_path)
                if cached is not None and cached.due is not None and cached.due <= now:
                    try:
                        await self._refresh_path(secret_path, cached)
                    except Exception as error:  # noqa: BLE001 - whatever a plugin does, the others are followed on
                        _log.warning("Config provider %s gives no values of %r: %s", *secret_path, error)
            await self._tell_watches()
            dues = [
                cached.due
                for secret_path in followed
                if (cached := self._cached_paths.get(secret_path)) is not None and cached.due is not None
            ]
            wait_s = max(0.05, min(dues) - time.monotonic()) if dues else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    async def _tell_watches(self) -> None:
        async with self._looking:
            for owner, watch in list(self._watches.items()):
                if not self._is_known(watch.config):
                    continue  # references would stand in the place of values
                resolved = self._put_values(watch.config)
                names = frozenset(name for name, value in resolved.items() if watch.resolved.get(name) != value)
                if not names or self._watches.get(owner) is not watch:
                    continue
                watch.resolved = resolved
                try:
                    await watch.changed(dict(resolved), names)
                except Exception:  # noqa: BLE001 - what goes wrong with one must not keep the others from theirs
                    _log.exception("New values of %s could not be taken over", ", ".join(sorted(names)))


def _part_of(values: Mapping[str, str], keys: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key in keys}


def _require_values(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    missing = before.keys() - now.keys()
    if missing:
        raise ConfigInvalid(f"there is no {', '.join(sorted(missing))} any more")


def build_keeper(
    providers: Mapping[str, ConfigProvider], on_value: Callable[[str], None], worker: Mapping[str, str]
) -> SecretKeeper:
    """A keeper as the worker's properties set it up.

    Raises:
        ConfigInvalid: one of them is wrong.
    """
    options = OPTIONS.parse(worker)
    return SecretKeeper(
        providers,
        on_value,
        options["config.providers.refresh.interval.ms"] / 1000,
        options["config.providers.timeout.ms"] / 1000,
    )
