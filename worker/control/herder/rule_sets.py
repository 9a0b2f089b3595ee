"""Rule sets of logs behind REST: saved with versions by the leader, checked before, and taken over by running connectors.

They stand in the placement topic (``worker.control.state.rule_sets``); every worker folds them and hands them to its tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

from connectors.errors import ConfigInvalid, Retriable
from worker.control.herder.base import lock_of
from worker.control.herder.rules import ask_logs
from worker.control.state.rule_sets import (
    MOST_BYTES,
    MOST_SETS,
    NAME,
    RULES_NAME,
    RULES_VERSION,
    StoredRuleVersion,
    surplus_versions,
    version_record,
)
from worker.rest.facade import NotLeader, RestError

if TYPE_CHECKING:
    from worker.control.herder.base import HerderContext
    from worker.control.state.rule_sets import RuleTable

_CATCH_UP_S: Final = 2.0
_CALLS: Final = frozenset({"preview", "diff", "propose"})
#: Complaints that an answer has at the most.
_SHOWN: Final = 10
#: Options whose complaints are about rules.
_RULE_OPTIONS: Final = ("rules", "row.id.column")


class RuleStore:
    """``/rules/NAME``: rule sets with their versions."""

    def __init__(self, ctx: HerderContext) -> None:
        self.ctx = ctx

    async def rule_sets(self) -> list[dict[str, Any]]:
        """All rule sets with their newest version."""
        await self._catch_up_rules()
        return [self._shown_set(name) for name in self._rule_table.names()]

    async def rule_set(self, name: str) -> dict[str, Any]:
        """One rule set with its newest version."""
        await self._known_rules(name)
        return {**self._shown_set(name), "rules": self._rule_table.versions(name)[-1].rules}

    async def rule_versions(self, name: str) -> list[dict[str, Any]]:
        """The versions of a rule set, the newest first."""
        await self._known_rules(name)
        return [_shown_version(version) for version in reversed(self._rule_table.versions(name))]

    async def rule_version(self, name: str, version: int) -> dict[str, Any]:
        """One version."""
        await self._known_rules(name)
        for saved in self._rule_table.versions(name):
            if saved.version == version:
                return {"name": name, **_shown_version(saved), "rules": saved.rules}
        raise RestError(404, f"Rule set {name} has no version {version}")

    async def put_rules(self, name: str, rules: Any, *, force: bool, comment: str) -> tuple[bool, dict[str, Any]]:
        """Save a rule set as a new version, unless it is the newest one already: (whether there was none, the set)."""
        if not NAME.match(name):
            raise RestError(400, f"A rule set can't be named {name!r}: use 1 to 100 letters, digits, '.', '_' and '-'")
        if name in _CALLS:
            raise RestError(400, f"A rule set can't be named {name}: POST /rules/{name} is a call of its own")
        await self.ctx.lead()
        async with lock_of(self.ctx.rule_locks, name):
            versions = self._rule_table.versions(name)
            newest = versions[-1] if versions else None
            if newest is not None and newest.rules == rules:
                return False, {**await self.rule_set(name), "warnings": []}
            if newest is None and len(self._rule_table.names()) >= MOST_SETS:
                raise RestError(400, f"There are {MOST_SETS} rule sets, as many as a cluster may have: delete some")
            warnings = await self._check_rules(name, rules, newest, force=force)
            if self._rule_table.versions(name) != versions:
                raise NotLeader(None)  # another worker has led meanwhile, and saved one
            number = 1 if newest is None else newest.version + 1
            version = StoredRuleVersion(number, rules, int(time.time() * 1000), forced=force, comment=comment)
            pair = version_record(name, number, version)
            if pair[1] is not None and len(pair[1]) > MOST_BYTES:
                raise RestError(
                    400, f"The rule set {name} takes {len(pair[1])} bytes; {MOST_BYTES} are allowed: divide its tables"
                )
            gone = surplus_versions((*versions, version), self._named_versions(name))
            await self.ctx.node.leader.write(placement=[pair, *(version_record(name, old, None) for old in gone)])
        return newest is None, {**await self.rule_set(name), "warnings": warnings}

    async def delete_rules(self, name: str) -> None:
        """Delete all versions; 409 while a connector names the rule set."""
        await self.ctx.lead()
        async with lock_of(self.ctx.rule_locks, name):
            await self._known_rules(name)
            users = self._list_users(name)
            if users:
                raise RestError(
                    409, f"Rule set {name} is used by {', '.join(users)}: change their rules.name, or delete them first"
                )
            await self.ctx.node.leader.write(
                placement=[version_record(name, version.version, None) for version in self._rule_table.versions(name)]
            )

    # Parts.

    @property
    def _rule_table(self) -> RuleTable:
        return self.ctx.node.placement.rules

    async def _catch_up_rules(self) -> None:
        """Read the placement topic to its end where another worker may have written."""
        if not self.ctx.node.leader.active:
            with contextlib.suppress(Retriable):  # without Kafka the answer is the state as it was read last
                await self.ctx.node.placement.log.read_to_end(_CATCH_UP_S)

    async def _known_rules(self, name: str) -> None:
        await self._catch_up_rules()
        if not self._rule_table.versions(name):
            raise RestError(404, f"There is no rule set {name}. PUT /rules/{name} saves one, GET /rules lists them")

    def _list_users(self, name: str) -> list[str]:
        connectors = self.ctx.snapshot.connectors
        return sorted(user for user, config in connectors.items() if config.get(RULES_NAME) == name)

    def _named_versions(self, name: str) -> frozenset[int]:
        """Versions that connectors name."""
        connectors = self.ctx.snapshot.connectors
        named = (connectors[user].get(RULES_VERSION, "").strip() for user in self._list_users(name))
        return frozenset(int(version) for version in named if version.isascii() and version.isdecimal())

    def _shown_set(self, name: str) -> dict[str, Any]:
        versions, connectors = self._rule_table.versions(name), self.ctx.snapshot.connectors
        used = {user: self._rule_table.chosen(connectors[user]) for user in self._list_users(name)}
        return {
            "name": name,
            **_shown_version(versions[-1]),
            "versions": len(versions),
            "connectors": {user: None if version is None else version.version for user, version in used.items()},
        }

    async def _check_rules(self, name: str, rules: Any, newest: StoredRuleVersion | None, *, force: bool) -> list[str]:
        """Refuse a rule set that can't work, and without ``force`` one that something speaks against.

        Returns:
            What could not be checked.
        """
        # Imported where it is needed: workers without logs do not load its pattern library.
        from connectors.logs.rules.tools.trials import check_saved

        try:
            problems = await asyncio.to_thread(check_saved, rules, None if newest is None else newest.rules)
        except ConfigInvalid as error:
            raise RestError(400, str(error)) from error
        warnings: list[str] = []
        for user in self._list_users(name):
            config = self.ctx.snapshot.connectors[user]
            if config.get(RULES_VERSION, "").strip():
                continue
            objections, unchecked = await self._check_for_connector(user, config, rules)
            problems += objections
            warnings += unchecked
        if problems and not force:
            raise RestError(
                400,
                f"Rule set {name} is not saved; objections: {len(problems)}. {'; '.join(problems[:_SHOWN])}. "
                "Change the rules, or the golden lines if their rows are right now, or save it anyway with ?force=true",
            )
        return warnings

    async def _check_for_connector(self, user: str, config: dict[str, str], rules: Any) -> tuple[list[str], list[str]]:
        """The objections to a rule set in a connector that would run it at once, and what could not be checked.

        Options and the schema registry are asked.
        """
        infos = await self.ctx.ask_validation(config, None, rules)
        entries = [entry["value"] for entry in infos["configs"]]
        problems = [
            f"connector {user}: {message}"
            for value in entries
            if value["name"].startswith(_RULE_OPTIONS)
            for message in value["errors"]
        ]
        if problems:
            return problems, []
        answer = await ask_logs(self.ctx, user, "schemas", {"rules": rules})
        refused, unchecked = (
            [f"connector {user}: {problem}" for problem in answer[kind]] for kind in ("problems", "warnings")
        )
        return refused, unchecked


def _shown_version(version: StoredRuleVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "created_ms": version.created_ms,
        "forced": version.forced,
        "comment": version.comment,
    }
