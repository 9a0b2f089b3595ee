"""Values of a type in the form of the same type as it was before, or is after, ALTER TYPE. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connectors.cql.values import BadCell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connectors.cql.types import CqlType

    #: None: values are right as they are.
    Refit = Callable[[Any], Any] | None


class AnotherTypeError(Exception):
    """A column was dropped and added again with another type: its values have no form in that one."""


def refit_values(kind: CqlType, target: CqlType) -> Refit:
    """The function that gives values of ``kind`` the fields that user-defined types in ``target`` have.

    Fields are known by their place: ALTER TYPE adds fields at the end and renames them, and does nothing else.

    Returns:
        None if values are right as they are.

    Raises:
        AnotherTypeError: the types differ in more than fields of user-defined types.
    """
    if kind == target:
        return None
    is_udt = kind.name == "udt"
    if (
        {kind.name, target.name} not in ({kind.name}, {"text", "varchar"})
        or (kind.dimension, kind.class_name, kind.keyspace, kind.udt_name)
        != (target.dimension, target.class_name, target.keyspace, target.udt_name)
        or (len(kind.arguments) != len(target.arguments) and not is_udt)
    ):
        raise AnotherTypeError
    members = [refit_values(*pair) for pair in zip(kind.arguments, target.arguments, strict=False)]
    if is_udt:
        return None if kind.field_names == target.field_names and not any(members) else _of_udt(kind, target, members)
    if not any(members):
        return None
    if kind.name == "map":
        return _over_null(
            lambda value: [
                {"key": _apply(members[0], entry["key"]), "value": _apply(members[1], entry["value"])}
                for entry in value
            ]
        )
    if kind.name == "tuple":
        return _over_null(
            lambda value: {
                f"field_{index}": _apply(change, value.get(f"field_{index}")) for index, change in enumerate(members)
            }
        )
    if kind.name == "timed_list":
        return _over_null(lambda value: [(time, _apply(members[0], item)) for time, item in value])
    return _over_null(lambda value: [_apply(members[0], item) for item in value])


def _of_udt(kind: CqlType, target: CqlType, members: Sequence[Refit]) -> Callable[[Any], Any]:
    known_fields = list(zip(target.field_names, kind.field_names, members, strict=False))
    newer_fields = dict.fromkeys(target.field_names[len(known_fields) :])
    return _over_null(
        lambda value: {name: _apply(change, value.get(field)) for name, field, change in known_fields} | newer_fields
    )


def _apply(change: Refit, value: Any) -> Any:
    return value if change is None else change(value)


def _over_null(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: value if value is None or type(value) is BadCell else change(value)
