"""Rule sets behind REST: what is kept, what is refused, and the instructions of tasks; over a leader in memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import orjson
import pytest

from connectors.errors import ConfigInvalid
from tests.support.eventually import pass_turns
from worker.control.herder.rule_sets import RuleStore
from worker.control.state.instructions import NONE, instructions_record
from worker.control.state.rule_sets import (
    KEPT,
    MOST_BYTES,
    RuleTable,
    StoredRuleVersion,
    surplus_versions,
    version_record,
    with_earlier_rules,
)
from worker.protocol import AskLogs, RemoteError
from worker.rest.facade import RestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offsets.records import Pair
    from worker.control.herder.base import HerderContext


def rules_of(*columns: str, golden: Sequence[Any] = (), version: int = 1) -> dict[str, Any]:
    """One table of words."""
    steps = [
        {"split": {"by": " ", "names": list(columns)}},
        {"saveAs": {"columns": [{"name": column} for column in columns]}},
    ]
    table = {"name": "words", "version": version, "groups": [{"name": "all", "steps": steps}]}
    return {"tables": [table], "golden": list(golden)}


class Cluster:
    """Stands for the herder's context, the leader, the placement topic and a task host."""

    def __init__(self, **connectors: dict[str, str]) -> None:
        self.table = RuleTable()
        self.snapshot = SimpleNamespace(connectors=connectors)
        self.rule_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.validate_s = 5.0
        self.errors: list[str] = []
        self.refusals: list[str] = []
        self.failure: Exception | None = None
        self.node = SimpleNamespace(
            placement=SimpleNamespace(rules=self.table),
            pool=self,
            leader=SimpleNamespace(active=True, write=self.write),
        )
        self.store = RuleStore(cast("HerderContext", self))

    async def lead(self) -> None:
        await pass_turns()

    def connector_type(self, config: Mapping[str, str]) -> str:
        del config
        return "source"

    async def write(self, config: Sequence[Pair] = (), placement: Sequence[Pair] = ()) -> None:
        assert not config, "Java's topic"
        await pass_turns()
        for key, value in placement:
            assert self.table.apply(key, value)

    async def ask_validation(self, config: Mapping[str, str], plugin: str | None, rules: Any) -> dict[str, Any]:
        assert config
        assert plugin is None
        assert rules is not None
        values = [("rules.name", self.errors), ("file", ["it is of no interest"])]
        return {"configs": [{"value": {"name": name, "errors": errors}} for name, errors in values]}

    async def ask(self, message: AskLogs, deadline_s: float, environments: object) -> bytes:
        assert (message.question, deadline_s, environments) == ("schemas", 5.0, None)
        if self.failure is not None:
            raise self.failure
        return orjson.dumps({"problems": self.refusals, "warnings": []})

    async def put(self, rules: Any, *, force: bool = False, name: str = "shop") -> dict[str, Any]:
        return (await self.store.put_rules(name, rules, force=force, comment="why"))[1]

    async def refused(self, rules: Any, name: str = "shop") -> RestError:
        with pytest.raises(RestError) as caught:
            await self.put(rules, name=name)
        return caught.value


async def test_versions_follow_each_other() -> None:
    cluster = Cluster()
    first = await cluster.put(rules_of("a"))
    assert (first["name"], first["version"], first["versions"], first["comment"]) == ("shop", 1, 1, "why")
    assert first["rules"] == rules_of("a")
    assert (await cluster.put(rules_of("a")))["version"] == 1, "the same rules are no new version"
    assert (await cluster.put(rules_of("a", "b", version=2)))["version"] == 2
    assert (await cluster.put(orjson.dumps(rules_of("a", "c", version=3)).decode()))["version"] == 3, "text"
    assert [entry["version"] for entry in await cluster.store.rule_versions("shop")] == [3, 2, 1]
    assert (await cluster.store.rule_version("shop", 2))["rules"] == rules_of("a", "b", version=2)
    assert [entry["name"] for entry in await cluster.store.rule_sets()] == ["shop"]
    for missing in (
        cluster.store.rule_set("x"),
        cluster.store.rule_version("shop", 9),
        cluster.store.delete_rules("x"),
    ):
        with pytest.raises(RestError) as caught:
            await missing
        assert caught.value.status == 404
    await cluster.store.delete_rules("shop")
    assert await cluster.store.rule_sets() == []


async def test_two_that_save_at_once_make_two_versions() -> None:
    cluster = Cluster()
    await asyncio.gather(cluster.put(rules_of("a")), cluster.put(rules_of("b"), force=True))
    assert [entry.version for entry in cluster.table.versions("shop")] == [1, 2]


async def test_golden_lines_guard_a_change() -> None:
    cluster = Cluster()
    golden = {"line": "x y", "rows": {"words": [{"a": "x", "b": "y"}]}}
    wrong = {"line": "x y", "rows": {"words": [{"a": "y", "b": "x"}]}}
    error = await cluster.refused(rules_of("a", "b", golden=[wrong]))
    assert (error.status, "'x y' must make {'words': [{'a': 'y', 'b': 'x'}]} and makes" in str(error)) == (400, True)
    await cluster.put(rules_of("a", "b", golden=[golden]))
    # Without the golden line, it counts all the same; with other rows for it, these do.
    swapped = rules_of("b", "a", version=2)
    assert "of the version before" in str(await cluster.refused(swapped))
    new = {"line": "x y", "rows": {"words": [{"b": "x", "a": "y"}]}}
    assert (await cluster.put({**swapped, "golden": [new]}))["version"] == 2
    forced = await cluster.put(rules_of("a", "b", golden=[wrong], version=3), force=True)
    assert (forced["version"], forced["forced"]) == (3, True)


async def test_what_is_refused() -> None:
    cluster = Cluster(user={"rules.name": "shop"}, pinned={"rules.name": "shop", "rules.version": "1"})
    await cluster.put(rules_of("a"))
    assert "give the table version 2" in str(await cluster.refused(rules_of("b")))
    broken: tuple[Any, ...] = ({"tables": []}, "tables: [", 7)
    for rules in broken:
        assert (await cluster.refused(rules)).status == 400
    cluster.refusals = ["table words: The schema registry would refuse it"]
    assert "connector user: table words" in str(await cluster.refused(rules_of("a", "b", version=2)))
    cluster.errors = ["Table words has a column of this name"]
    assert "connector user: Table words has" in str(await cluster.refused(rules_of("a", "b", version=2)))
    assert "pinned" not in str(await cluster.refused(rules_of("a", "b", version=2)))
    assert "of no interest" not in str(await cluster.refused(rules_of("a", "b", version=2)))
    cluster.errors, cluster.failure = [], RemoteError("Retriable", "the registry is away")
    assert (await cluster.refused(rules_of("a", "b", version=2))).status == 503
    for name in ("", "a/b", "a:b", "..", "x" * 101, "preview"):
        assert (await cluster.refused(rules_of("a"), name)).status == 400
    large = {**rules_of("a"), "name": "x" * MOST_BYTES}
    assert "divide its tables" in str(await cluster.refused(large, "large"))
    with pytest.raises(RestError, match="is used by pinned, user"):
        await cluster.store.delete_rules("shop")
    shown = (await cluster.store.rule_set("shop"))["connectors"]
    assert shown == {"pinned": 1, "user": 1}


def test_old_versions_go() -> None:
    versions = [StoredRuleVersion(number, {}, 0) for number in range(1, KEPT + 4)]
    assert surplus_versions(versions, frozenset({2})) == [1, 3, 4]
    assert surplus_versions(versions[:3], frozenset(), 1) == [1, 2]
    assert surplus_versions(versions[:3], frozenset({1, 2}), 1) == []


def test_instructions_of_tasks() -> None:
    table = RuleTable()
    config = {"rules.name": "shop"}
    asked = orjson.dumps([{"id": "s", "state": "running", "origin": "rest"}])
    assert table.instructions("c", config, asked) == asked, "there is no such rule set"
    for number in (1, 2):
        table.apply(*version_record("shop", number, StoredRuleVersion(number, {"tables": number}, 5)))
    instructions = table.instructions("c", config, asked)
    assert table.instructions("c", dict(config), asked) is instructions, "made once"
    request, rules = orjson.loads(instructions)
    assert request["id"] == "s"
    assert (rules["origin"], rules["version"], rules["rules"]) == ("rules", 2, {"tables": 2})
    (pinned,) = orjson.loads(table.instructions("d", {**config, "rules.version": "1"}, NONE))
    assert pinned["version"] == 1
    assert table.instructions("e", {**config, "rules.version": "7"}, NONE) == NONE
    table.apply(*version_record("shop", 3, StoredRuleVersion(3, {}, 5)))
    assert orjson.loads(table.instructions("c", config, asked))[1]["version"] == 3
    assert table.instructions("c", {}, asked) == asked


def test_the_rules_whose_rows_a_replay_replaces() -> None:
    table = RuleTable()
    for number in (2, 3, 4):
        table.apply(*version_record("shop", number, StoredRuleVersion(number, {"tables": number}, 5)))
    newest, pinned = {"rules.name": "shop"}, {"rules.name": "shop", "rules.version": "3"}

    def earlier(config: dict[str, str], replaces: int) -> list[int]:
        request = with_earlier_rules(table, config, {"id": "a", "replay": {"source": "INPUT", "replaces": replaces}})
        assert (request["id"], request["replay"]["replaces"]) == ("a", replaces)
        return [rules["tables"] for rules in request["replay"]["earlier"]]

    assert earlier(newest, 2) == [2, 3]
    assert earlier(newest, 3) == [3]
    assert earlier(pinned, 2) == [2, 4], "also rows of later versions, after a step back"
    for config, replaces in ((newest, 1), (newest, 4), (newest, 5), ({}, 2), ({"rules.name": "none"}, 2)):
        with pytest.raises(ConfigInvalid, match="replaces names a version"):
            earlier(config, replaces)
    others: list[dict[str, Any]] = [{"replay": {}}, {"tables": ["t"]}, {"replay": {"source": "INPUT"}}]
    for other in others:
        assert with_earlier_rules(table, {}, other) is other


def test_records_that_make_no_sense_change_nothing() -> None:
    table = RuleTable()
    assert not table.apply(*instructions_record("c", []))
    assert not table.apply(None, b"")
    for key, value in ((b"rules-", b"{}"), (b"rules-x", b"{}"), (b"rules-x:y", b"{}"), (b"rules-x:1", b"[")):
        assert table.apply(key, value)
    assert table.names() == []
    table.apply(*version_record("a:b", 1, StoredRuleVersion(1, {}, 0)))
    assert table.names() == ["a:b"]
    table.apply(*version_record("a:b", 1, None))
    assert table.names() == []
