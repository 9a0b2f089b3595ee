"""The instructions of a running task: the rule set that the cluster keeps for it, and replays.

``InstructionList`` does no I/O.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import ConfigInvalid, Fatal, Retriable
from connectors.logs.config import RULES_NAME, check_stored, load_rules
from connectors.logs.rules.compiled import compile_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connectors.api import Instruction
    from connectors.logs.rules.compiled import CompiledRules

#: In an instruction: that it is the connector's rule set.
FROM_STORE: Final = "rules"


class StoredRules(msgspec.Struct, frozen=True):
    """A version of a rule set as the cluster keeps it."""

    name: str
    version: int
    rules: Any


class InstructionList:
    """The newest list of instructions."""

    def __init__(self) -> None:
        self.rules: StoredRules | None = None
        self.replays: list[Instruction] = []
        #: Set when there is something new; whoever looks clears it.
        self.changed = asyncio.Event()

    def take(self, instructions: Sequence[Instruction]) -> None:
        """Note a new list."""
        stored = next((asked for asked in instructions if asked.get("origin") == FROM_STORE), None)
        self.rules = None if stored is None else msgspec.convert(stored, StoredRules, strict=False)
        self.replays = [asked for asked in instructions if asked.get("origin") != FROM_STORE]
        self.changed.set()


async def prepare_rules(
    config: Mapping[str, Any], standing: InstructionList
) -> tuple[CompiledRules, StoredRules | None]:
    """The rules of the configuration, or those that the cluster keeps under the name in it.

    Raises:
        Fatal: they can't be read, or don't work with this configuration.
        Retriable: this task has not got its rules from the cluster yet.
    """
    stored = standing.rules
    if config[RULES_NAME] and stored is None:
        raise Retriable(
            f"the rule set {config[RULES_NAME]} is not there: GET /rules lists those that the cluster keeps"
        )

    def prepare() -> CompiledRules:
        if stored is not None and config[RULES_NAME]:
            return compile_rules(check_stored(config, stored.rules, stored.name))
        return compile_rules(load_rules(config))

    try:
        return await asyncio.to_thread(prepare), stored if config[RULES_NAME] else None
    except ConfigInvalid as error:
        raise Fatal(str(error)) from error
