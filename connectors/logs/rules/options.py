"""How operators declare their options: a field of the class for each, with its type, default and text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from connectors.logs.rules.plans import Plan


class Operator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The options of one step. A subclass is an operator; its docstring and its fields' descriptions are the reference."""

    def make_plan(self) -> Plan:
        """The plan of the step.

        Raises:
            OptionInvalid: an option is wrong.
        """
        raise NotImplementedError
