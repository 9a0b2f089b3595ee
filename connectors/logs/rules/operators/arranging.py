"""Operators that change which fields there are, and their names and order: select, excludeField, rename, toIndex."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from connectors.logs.rules.errors import OperatorOptionInvalid
from connectors.logs.rules.options import Operator
from connectors.logs.rules.plans import ArrangeFields, Plan
from connectors.logs.rules.records import FieldName, StepFailed, name_of


class Select(Operator, frozen=True):
    """Keep only the listed fields, in this order."""

    fields: Annotated[list[FieldName], Meta(description="The fields.")]

    def make_plan(self) -> Plan:
        """As in the base class."""
        if not self.fields:
            raise OperatorOptionInvalid("fields", "give at least one field")

        def arrange(names: tuple[str, ...]) -> list[tuple[str, str]]:
            return [(name, name) for name in (name_of(names, field) for field in self.fields)]

        return ArrangeFields(arrange, "fields")


class ExcludeField(Operator, frozen=True):
    """Leave out the listed fields."""

    fields: Annotated[list[FieldName], Meta(description="The fields.")]

    def make_plan(self) -> Plan:
        """As in the base class."""
        if not self.fields:
            raise OperatorOptionInvalid("fields", "give at least one field")

        def arrange(names: tuple[str, ...]) -> list[tuple[str, str]]:
            excluded = {name_of(names, field) for field in self.fields}
            return [(name, name) for name in names if name not in excluded]

        return ArrangeFields(arrange, "fields")


class Rename(Operator, frozen=True):
    """Give fields other names; they keep their positions."""

    fields: Annotated[dict[str, str], Meta(description="Present and new name of each field.")]

    def make_plan(self) -> Plan:
        """As in the base class."""
        new = list(self.fields.values())
        if not new or len(set(new)) != len(new):
            raise OperatorOptionInvalid("fields", "give at least one field, and each a new name of its own")
        if any(name.startswith("@") for name in new):
            raise OperatorOptionInvalid(
                "fields", "names that start with @ are for where a line comes from; choose another name"
            )

        def arrange(names: tuple[str, ...]) -> list[tuple[str, str]]:
            for name in self.fields:
                name_of(names, name)
            result = [(self.fields.get(name, name), name) for name in names]
            if len({target for target, _ in result}) != len(result):
                raise StepFailed("a new name is the name of another field; exclude that one first")
            return result

        return ArrangeFields(arrange, "fields")


class ToIndex(Operator, frozen=True):
    """Turn named values into positions: the listed fields, in order, under the names 0, 1 and so on."""

    fields: Annotated[list[FieldName], Meta(description="The fields; none for all of them.")] = []  # noqa: RUF012 - msgspec copies it

    def make_plan(self) -> Plan:
        """As in the base class."""

        def arrange(names: tuple[str, ...]) -> list[tuple[str, str]]:
            fields = [name_of(names, field) for field in self.fields] if self.fields else names
            return [(str(number), name) for number, name in enumerate(fields)]

        return ArrangeFields(arrange, "fields")
