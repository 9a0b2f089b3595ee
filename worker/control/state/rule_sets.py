"""The rule sets of logs that are kept behind REST, with their versions, as records of the placement topic. Pure.

One record for each version, ``rules-NAME:VERSION``, written by the leader. They are not in the config topic, which Java workers
read and which holds nothing that they do not know.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offsets.records import Pair

#: Options of a connector: the rule set that it runs, and the version; without a version the newest.
RULES_NAME: Final = "rules.name"
RULES_VERSION: Final = "rules.version"
#: The rule set itself, in a configuration that is checked.
RULES_DOCUMENT: Final = "rules.document"
#: In an instruction: that it is the rule set of the connector, and no request of an operator.
ORIGIN: Final = "rules"
_KEY: Final = "rules-"
NAME: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,100}\Z")
#: Versions of one rule set; beyond, the oldest that no connector names are deleted.
KEPT: Final = 100
#: Rule sets of a cluster: all of them are in every worker's memory.
MOST_SETS: Final = 1000
#: Bytes of one record: well below what brokers accept by default.
MOST_BYTES: Final = 700_000


class StoredRuleVersion(msgspec.Struct, frozen=True):
    """One version of a rule set.

    Attributes:
        version: its number, from 1.
        rules: the rule set as it was given: text, or an object.
        created_ms: when it was saved, milliseconds since 1970.
        forced: whether it was saved although something spoke against it.
        comment: what its author says of it.
    """

    version: int
    rules: Any
    created_ms: int
    forced: bool = False
    comment: str = ""


class RuleTable:
    """The records folded. Nothing blocks."""

    def __init__(self) -> None:
        self._sets: dict[str, tuple[StoredRuleVersion, ...]] = {}
        #: Connector -> what its instructions were made of, and the instructions: made once.
        self._fed: dict[str, tuple[bytes, StoredRuleVersion, bytes]] = {}

    def apply(self, key: bytes | None, value: bytes | None) -> bool:
        """Fold one record in; False if it is of another kind. An unreadable one changes nothing."""
        record_key = (key or b"").decode(errors="replace")
        if not record_key.startswith(_KEY):
            return False
        name, _, number = record_key[len(_KEY) :].rpartition(":")
        if not name or not number.isascii() or not number.isdecimal():
            return True
        others = tuple(version for version in self._sets.get(name, ()) if version.version != int(number))
        if value is not None:
            try:
                decoded = msgspec.json.decode(value, type=StoredRuleVersion)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return True
            others = tuple(sorted((*others, decoded), key=lambda version: version.version))
        if others:
            self._sets[name] = others
        else:
            self._sets.pop(name, None)
        return True

    def names(self) -> list[str]:
        """All rule sets, sorted."""
        return sorted(self._sets)

    def versions(self, name: str) -> tuple[StoredRuleVersion, ...]:
        """The versions of a rule set, the oldest first; () if there is no such rule set."""
        return self._sets.get(name, ())

    def chosen(self, config: Mapping[str, str]) -> StoredRuleVersion | None:
        """The version that a connector with this configuration runs; None if it names none, or one that there is not."""
        versions = self.versions(config.get(RULES_NAME, ""))
        number = config.get(RULES_VERSION, "").strip()
        if not number:
            return versions[-1] if versions else None
        return next((version for version in versions if str(version.version) == number), None)

    def instructions(self, connector: str, config: Mapping[str, str], encoded: bytes) -> bytes:
        """The instructions of a connector's tasks: its operators' requests, and its rule set if it names one.

        Args:
            connector: its name.
            config: its configuration.
            encoded: the requests, a JSON list; equal bytes are equal lists, and so are those of the result.
        """
        if not config.get(RULES_NAME):
            self._fed.pop(connector, None)
            return encoded
        version = self.chosen(config)
        if version is None:
            return encoded
        fed = self._fed.get(connector)
        if fed is not None and fed[0] == encoded and fed[1] is version:
            return fed[2]
        row = {
            "id": f"rules:{config[RULES_NAME]}",
            "state": "running",
            "origin": ORIGIN,
            "created_ms": version.created_ms,
            "name": config[RULES_NAME],
            "version": version.version,
            "rules": version.rules,
        }
        result = orjson.dumps([*orjson.loads(encoded), row])
        self._fed[connector] = encoded, version, result
        return result


def with_earlier_rules(table: RuleTable, config: Mapping[str, str], request: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request for a replay that replaces the rows of earlier versions: the same with their rules; others as they are.

    Args:
        table: the rule sets.
        config: of the connector.
        request: for a snapshot.

    Raises:
        ConfigInvalid: the connector names no rule set, or the version is not there.
    """
    replay = request.get("replay")
    if not isinstance(replay, dict) or not replay.get("replaces"):
        return request
    first, chosen = replay["replaces"], table.chosen(config)
    if chosen is None:
        raise ConfigInvalid(
            f"replaces names a version of a rule set that the cluster keeps: give the connector one by {RULES_NAME}"
        )
    name = config[RULES_NAME]
    kept = {version.version: version.rules for version in table.versions(name)}
    earlier = [rules for number, rules in kept.items() if number >= first and number != chosen.version]
    if first not in kept or not earlier:
        raise ConfigInvalid(
            f"replaces names a version of the rule set {name} other than {chosen.version}, which the connector runs, and it is "
            f"{first}. GET /rules/{name}/versions lists them",
        )
    return {**request, "replay": {**replay, "earlier": earlier}}


def version_record(name: str, number: int, version: StoredRuleVersion | None) -> Pair:
    """The record of one version; None deletes it."""
    return f"{_KEY}{name}:{number}".encode(), None if version is None else msgspec.json.encode(version)


def surplus_versions(versions: Sequence[StoredRuleVersion], named: frozenset[int], kept: int = KEPT) -> list[int]:
    """The numbers of the oldest versions that go when there are more than ``kept``; the newest and those in ``named`` stay."""
    over = len(versions) - kept
    free = [version.version for version in versions[:-1] if version.version not in named]
    return free[: max(0, over)]
