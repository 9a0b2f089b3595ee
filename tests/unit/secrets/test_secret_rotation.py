"""Values of config providers over time."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from connectors.errors import ConfigInvalid, Retriable
from connectors.options import ConfigDef, ConfigKey, ConfigType
from tests.support.eventually import eventually_async
from worker.secrets.providers import ConfigData, ConfigProvider, build_providers
from worker.secrets.rotation import SecretKeeper, Unanswered, build_keeper

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

CONFIG = {"password": "${box:shop:password}", "url": "http://${box:shop:user}@x", "plain": "1", "other": "${none:a:b}"}


class Box(ConfigProvider):
    """Values that the test changes; fails, hangs and tells of changes as the test wants."""

    def __init__(self, parameters: Mapping[str, str] | None = None) -> None:
        del parameters
        self.values = {"password": "one", "user": "me"}
        self.ttl: int | None = None
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0
        self.threads: set[int] = set()
        self.listeners: list[Callable[[], None]] = []
        self.subscribed: list[Collection[str]] = []
        self.subscribes = False
        self.closed = False

    def get(self, path: str, keys: Collection[str]) -> ConfigData:
        assert path == "shop"
        self.asked += 1
        self.threads.add(threading.get_ident())
        self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return ConfigData({key: self.values[key] for key in keys if key in self.values}, self.ttl)

    def subscribe(self, path: str, keys: Collection[str], changed: Callable[[], None]) -> Callable[[], None] | None:
        del path
        if not self.subscribes:
            return None
        self.listeners.append(changed)
        self.subscribed.append(keys)

        def unsubscribe() -> None:
            self.listeners.remove(changed)
            self.subscribed.remove(keys)

        return unsubscribe

    def close(self) -> None:
        self.closed = True


class Follower:
    """Records the notifications that it gets."""

    def __init__(self) -> None:
        self.changes: asyncio.Queue[tuple[dict[str, str], frozenset[str]]] = asyncio.Queue()

    async def __call__(self, resolved: dict[str, str], names: frozenset[str]) -> None:
        self.changes.put_nowait((resolved, names))

    async def next(self) -> tuple[dict[str, str], frozenset[str]]:
        return await asyncio.wait_for(self.changes.get(), 10)


async def test_changes_are_reported_with_what_differs() -> None:
    box, follower, seen = Box(), Follower(), set[str]()
    keeper = SecretKeeper({"box": box}, seen.add, interval_s=0.05)
    resolved = await keeper.resolve(CONFIG)
    assert resolved == {"password": "one", "url": "http://me@x", "plain": "1", "other": "${none:a:b}"}
    assert keeper.watch("task", CONFIG, resolved, follower)
    assert not keeper.watch("plain", {"a": "b"}, {"a": "b"}, follower)
    keeper.start()
    box.values = {"password": "two", "user": "me"}
    assert await follower.next() == ({**resolved, "password": "two"}, frozenset({"password"}))
    assert seen == {"one", "two", "me"}
    assert threading.get_ident() not in box.threads
    keeper.unwatch("task")
    await keeper.close()
    assert box.closed


async def test_a_failing_provider_keeps_its_last_values() -> None:
    box, follower = Box(), Follower()
    keeper = SecretKeeper({"box": box}, lambda _: None, interval_s=0.05)
    resolved = await keeper.resolve(CONFIG)
    keeper.watch("task", CONFIG, resolved, follower)
    for error in (Retriable("away"), OSError("broken"), ConfigInvalid("refused")):
        box.error = error
        assert await keeper.resolve(CONFIG) == resolved
    assert keeper.failures == {"box": 3}
    assert keeper.stale == {"box": 1}
    box.error, box.values = None, {"user": "me"}  # a file that is being written
    assert await keeper.resolve(CONFIG) == resolved
    box.values = {"user": "me", "password": "two"}
    assert (await keeper.resolve(CONFIG))["password"] == "two"
    assert keeper.stale == {"box": 0}
    await keeper.close()


@pytest.mark.parametrize("strict", [False, True])
async def test_a_key_that_no_configuration_needs_any_more_may_go(strict: bool) -> None:
    class Strict(Box):
        """Refuses a question for a key that it does not have, as some vaults do."""

        def get(self, path: str, keys: Collection[str]) -> ConfigData:
            if strict and not self.values.keys() >= set(keys):
                raise ConfigInvalid("no such key")
            return super().get(path, keys)

    box, follower = Strict(), Follower()
    box.values = {"password": "one", "user": "me", "retired": "old", "tried": "x"}
    keeper = SecretKeeper({"box": box}, lambda _: None, interval_s=0.05)
    retired = {"password": "${box:shop:retired}"}
    resolved = await keeper.resolve(CONFIG)
    keeper.watch("task", CONFIG, resolved, follower)
    keeper.watch("deleted", retired, await keeper.resolve(retired), Follower())
    assert await keeper.resolve({"validated": "${box:shop:tried}"}) == {"validated": "x"}
    keeper.unwatch("deleted")
    keeper.start()
    box.values = {"password": "two", "user": "me"}
    assert (await follower.next())[0]["password"] == "two"
    assert await keeper.resolve(CONFIG) == {**resolved, "password": "two"}
    assert keeper.stale == {"box": 0}
    await keeper.close()


async def test_a_configuration_that_is_followed_again_gets_what_has_changed_meanwhile() -> None:
    box, follower = Box(), Follower()
    box.ttl = 3_600_000
    keeper = SecretKeeper({"box": box}, lambda _: None)
    user, password = {"user": "${box:shop:user}"}, {"password": "${box:shop:password}"}
    keeper.watch("stays", user, await keeper.resolve(user), follower)
    keeper.watch("leaves", password, await keeper.resolve(password), follower)
    keeper.unwatch("leaves")
    box.values = {"password": "two", "user": "I"}
    await keeper.refresh("stays")
    assert await keeper.resolve(password) == {"password": "two"}, "it was not asked for since"
    await keeper.close()


async def test_what_was_never_known_is_an_error() -> None:
    box = Box()
    box.error = Retriable("away")
    keeper = SecretKeeper({"box": box}, lambda _: None)
    with pytest.raises(Retriable, match="away"):
        await keeper.resolve(CONFIG)
    box.error = None
    keeper = SecretKeeper({"box": box}, lambda _: None)
    await keeper.resolve({"password": CONFIG["password"]})
    box.error = Retriable("away")
    with pytest.raises(Retriable, match="away"):
        await keeper.resolve(CONFIG)  # the user's name was not asked for before


async def test_values_are_not_asked_for_again_while_they_live() -> None:
    box = Box()
    box.ttl = 60_000
    keeper = SecretKeeper({"box": box}, lambda _: None)
    for _ in range(3):
        await keeper.resolve(CONFIG)
    assert box.asked == 1
    keeper.watch("task", CONFIG, await keeper.resolve(CONFIG), Follower())
    assert not await keeper.refresh("task")
    assert box.asked == 2  # a refusal by the source is a reason to look all the same


async def test_a_short_life_is_looked_at_before_its_end() -> None:
    box, follower = Box(), Follower()
    box.ttl = 500
    keeper = SecretKeeper({"box": box}, lambda _: None, interval_s=0)
    keeper.watch("task", CONFIG, await keeper.resolve(CONFIG), follower)
    keeper.start()
    box.values = {"password": "two", "user": "you"}
    assert (await follower.next())[1] == {"password", "url"}
    await keeper.close()


async def test_a_subscription_is_faster_than_any_clock() -> None:
    box, follower = Box(), Follower()
    box.ttl, box.subscribes = 3_600_000, True
    keeper = SecretKeeper({"box": box}, lambda _: None, interval_s=0)
    keeper.watch("task", CONFIG, await keeper.resolve(CONFIG), follower)
    keeper.start()
    box.values = {"password": "two", "user": "me"}
    await asyncio.to_thread(box.listeners[0])
    assert (await follower.next())[0]["password"] == "two"
    keeper.unwatch("task")
    assert box.listeners == []
    await keeper.close()


async def test_keys_that_come_later_are_subscribed_to_as_well() -> None:
    """Another connector refers to another key of the same path: the provider hears of both."""
    box, follower = Box(), Follower()
    box.ttl, box.subscribes = 3_600_000, True
    keeper = SecretKeeper({"box": box}, lambda _: None)
    for owner, config in (("first", {"a": "${box:shop:user}"}), ("second", {"b": "${box:shop:password}"})):
        keeper.watch(owner, config, await keeper.resolve(config), follower)
    assert [sorted(keys) for keys in box.subscribed] == [["password", "user"]]
    keeper.start()
    box.values["password"] = "two"
    box.listeners[-1]()
    assert await follower.next() == ({"b": "two"}, frozenset({"b"}))
    await keeper.close()
    assert not box.subscribed


async def test_a_provider_that_hangs_holds_nothing_up() -> None:
    box = Box()
    keeper = SecretKeeper({"box": box}, lambda _: None, deadline_s=0.1)
    resolved = await keeper.resolve(CONFIG)
    keeper.watch("task", CONFIG, resolved, Follower())
    box.gate.clear()
    asked = box.asked
    for _ in range(3):
        assert await keeper.resolve(CONFIG) == resolved
    assert box.asked == asked + 1  # the thread that hangs is the only one
    box.gate.set()
    fresh = SecretKeeper({"box": Box()}, lambda _: None, deadline_s=0.05)
    fresh._providers["box"].gate.clear()  # type: ignore[attr-defined]
    with pytest.raises(Unanswered, match=r"config\.providers\.timeout\.ms"):
        await fresh.resolve(CONFIG)
    fresh._providers["box"].gate.set()  # type: ignore[attr-defined]


async def test_what_is_still_being_written_is_not_taken() -> None:
    class Writing(Box):
        def get(self, path: str, keys: Collection[str]) -> ConfigData:
            if passwords:
                self.values = {**self.values, "password": passwords.pop(0)}
            return super().get(path, keys)

    passwords: list[str] = []
    keeper = SecretKeeper({"box": Writing()}, lambda _: None)
    assert (await keeper.resolve(CONFIG))["password"] == "one"
    passwords += ["t", "two"]
    assert (await keeper.resolve(CONFIG))["password"] == "one"
    assert (await keeper.resolve(CONFIG))["password"] == "two"


async def test_a_new_key_of_what_is_still_being_written_is_waited_for() -> None:
    class Changing(Box):
        def get(self, path: str, keys: Collection[str]) -> ConfigData:
            self.values["password"] = str(self.asked)
            return super().get(path, keys)

    keeper = SecretKeeper({"box": Changing()}, lambda _: None)
    assert await keeper.resolve({"user": "${box:shop:user}"}) == {"user": "me"}
    # The task that needs it waits; it does not start with the reference as its password.
    with pytest.raises(Unanswered, match="just changing 'shop'"):
        await keeper.resolve({"password": "${box:shop:password}"})
    await keeper.close()


async def test_a_provider_that_has_failed_is_asked_again() -> None:
    box, follower = Box(), Follower()
    keeper = SecretKeeper({"box": box}, lambda _: None, interval_s=0.05)
    keeper.watch("task", CONFIG, await keeper.resolve(CONFIG), follower)
    box.error = Retriable("away")
    keeper.start()
    await eventually_async(lambda: keeper.failures["box"] >= 2, "the provider has failed twice")
    box.values, box.error = {"password": "two", "user": "me"}, None
    assert (await follower.next())[0]["password"] == "two"
    await keeper.close()


@pytest.mark.parametrize(
    ("interval_s", "ttl", "due_s"),
    [
        (10.0, 20_000, 16.0),
        (0.0, 20_000, 16.0),
        (10.0, 0, 0.2),
        (10.0, None, 10.0),
        (10.0, -1, 10.0),
        (0.0, None, None),
    ],
)
async def test_when_values_are_looked_at_again(interval_s: float, ttl: int | None, due_s: float | None) -> None:
    box = Box()
    box.ttl = ttl
    keeper = SecretKeeper({"box": box}, lambda _: None, interval_s=interval_s)
    begin = time.monotonic()
    await keeper.resolve(CONFIG)
    due = keeper._cached_paths["box", "shop"].due
    if due_s is None:
        assert due is None
    else:
        assert due is not None
        assert begin + due_s <= due <= time.monotonic() + due_s


async def test_a_follower_that_left_gets_no_changes() -> None:
    box, second = Box(), Follower()
    keeper = SecretKeeper({"box": box}, lambda _: None)
    resolved = await keeper.resolve(CONFIG)
    changed_names: list[str] = []

    async def first(_: dict[str, str], names: frozenset[str]) -> None:
        changed_names.extend(names)
        keeper.unwatch("second")

    keeper.watch("first", CONFIG, resolved, first)
    keeper.watch("second", CONFIG, resolved, second)
    box.values = {"password": "two", "user": "me"}
    assert await keeper.refresh("first")
    assert (changed_names, second.changes.empty()) == (["password"], True)


async def test_a_path_is_not_forgotten_while_somebody_resolves_it() -> None:
    box = Box()
    keeper = SecretKeeper({"box": box}, lambda _: None)
    keeper.watch("leaving", CONFIG, await keeper.resolve(CONFIG), Follower())
    box.gate.clear()
    resolving = asyncio.create_task(keeper.resolve(CONFIG))
    await eventually_async(lambda: box.asked == 2, "the provider is asked")
    keeper.unwatch("leaving")  # another task of the connector stops
    box.gate.set()
    assert (await resolving)["password"] == "one"
    await keeper.close()


async def test_a_follower_whose_path_was_forgotten_meanwhile_gets_values_and_no_references() -> None:
    box, follower = Box(), Follower()
    keeper = SecretKeeper({"box": box}, lambda _: None, interval_s=0.05)
    keeper.start()
    keeper.watch("leaving", CONFIG, await keeper.resolve(CONFIG), Follower())
    resolved = await keeper.resolve(CONFIG)
    keeper.unwatch("leaving")
    box.gate.clear()
    assert keeper.watch("task", CONFIG, resolved, follower)
    asked = box.asked
    await eventually_async(lambda: box.asked > asked, "the provider is asked again")
    box.values = {"password": "two", "user": "me"}
    box.gate.set()
    assert await follower.next() == ({**resolved, "password": "two"}, frozenset({"password"}))
    await keeper.close()


async def test_paths_that_nobody_follows_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Paths(Box):
        def get(self, path: str, keys: Collection[str]) -> ConfigData:
            del path
            return super().get("shop", keys)

    monkeypatch.setattr("worker.secrets.rotation._MOST_PATHS", 3)
    box = Paths()
    box.ttl = 60_000
    keeper = SecretKeeper({"box": box}, lambda _: None)
    followed, others = {"a": "${box:followed:user}"}, [{"a": f"${{box:{number}:user}}"} for number in range(4)]
    keeper.watch("task", followed, await keeper.resolve(followed), Follower())
    for config in others:
        await keeper.resolve(config)
    assert box.asked == 5
    for config in (others[3], followed, others[0]):
        assert await keeper.resolve(config) == {"a": "me"}
    assert box.asked == 6


def test_passwords_change_where_they_are() -> None:
    definition = ConfigDef(
        [
            ConfigKey(name="password", type=ConfigType.PASSWORD, doc="d"),
            ConfigKey(name="topic", type=ConfigType.STRING, doc="d"),
        ]
    )
    config = definition.parse({"password": "one", "topic": "t"})
    password = config["password"]
    config.renew(definition.parse({"password": "two", "topic": "t"}), ["password"])
    assert password.value == "two"
    assert config.raw["password"] == "two"
    assert "two" not in repr(config)


def test_options_of_the_worker() -> None:
    keeper = build_keeper(
        {}, lambda _: None, {"config.providers.refresh.interval.ms": "250", "config.providers.timeout.ms": "700"}
    )
    assert (keeper._interval_s, keeper._deadline_s) == (0.25, 0.7)
    with pytest.raises(ConfigInvalid, match=r"config\.providers\.timeout\.ms"):
        build_keeper({}, lambda _: None, {"config.providers.timeout.ms": "1"})


def test_plugins_of_a_newer_contract_are_refused() -> None:
    class Newer(Box):
        contract = 2

    worker = {"config.providers": "b", "config.providers.b.class": "org.acme.Box"}
    assert isinstance(build_providers(worker, lambda _: Box)["b"], Box)
    with pytest.raises(ConfigInvalid, match="version 2 of the contract, and this worker knows version 1"):
        build_providers(worker, lambda _: Newer)
    with pytest.raises(ConfigInvalid, match="could not be found"):
        build_providers(worker)
