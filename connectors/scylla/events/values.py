"""Small functions on cells that generated code calls; all of them take and give values in the forms of log rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from connectors.cql.schemas import JAVA
from connectors.formats.timeuuid import format_uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from connectors.cql.debezium_names import ValueForms
    from connectors.cql.types import CqlType

    _Form = Callable[[Any], Any] | None

#: 100 ns steps from the beginning of the Gregorian calendar, where time uuids count from, to 1970.
UUID_EPOCH: Final = 0x01B21DD213814000
#: 1582-10-15 in days since 1970.
_CUTOVER: Final = -141_427


def list_values(pairs: list[tuple[bytes, Any]] | None) -> list[Any] | None:
    """The elements of a multicell list as the log has it."""
    return None if pairs is None else [pair[1] for pair in pairs]


def change_mode(added: Any, deleted: Any, elements: Any) -> str | None:
    """How a write changed a multicell column: ``overwrite``, ``delete``, ``modify``, or None if it did not."""
    if deleted:
        return "overwrite" if added is not None else "delete"
    return "modify" if added is not None or elements is not None else None


def collection_delta(added: Any, deleted: Any, elements: Any) -> dict[str, Any] | None:
    """The delta of a set or a map."""
    mode = change_mode(added, deleted, elements)
    return None if mode is None else {"mode": mode, "added": added, "removed": elements}


def list_delta(
    added: list[tuple[bytes, Any]] | None, deleted: Any, elements: list[bytes] | None
) -> dict[str, Any] | None:
    """The delta of a list: its elements are identified by their time uuids, which order them."""
    mode = change_mode(added, deleted, elements)
    if mode is None:
        return None
    return {
        "mode": mode,
        "added": None if added is None else [{"key": format_uuid(key), "value": value} for key, value in added],
        "removed": None if elements is None else [format_uuid(key) for key in elements],
    }


def udt_delta(names: tuple[str, ...]) -> Callable[[Any, Any, Any], dict[str, Any] | None]:
    """The function for the deltas of a UDT with these fields; a removed field that it does not have is named by its number."""

    def delta(added: Any, deleted: Any, elements: list[int] | None) -> dict[str, Any] | None:
        mode = change_mode(added, deleted, elements)
        if mode is None:
            return None
        removed = (
            None
            if elements is None
            else [names[index] if 0 <= index < len(names) else str(index) for index in elements]
        )
        return {"mode": mode, "added": added, "removed": removed}

    return delta


def delta_function(kind: CqlType, names: ValueForms = JAVA) -> Callable[[Any, Any, Any], dict[str, Any] | None]:
    """The function from (value, ``cdc$deleted``, ``cdc$deleted_elements``) of a multicell column to its delta."""
    if kind.name == "list":
        make_delta: Callable[[Any, Any, Any], dict[str, Any] | None] = list_delta
    else:
        make_delta = udt_delta(kind.field_names) if kind.name == "udt" else collection_delta
    element = event_form(kind.arguments[0], frozenset(), names)
    if kind.name == "list":
        added = None if element is None else _list_form(lambda pair: (pair[0], element(pair[1])), pairs=False)
        removed = None
    else:
        added = event_form(kind, frozenset(), names)
        removed = None if kind.name == "udt" or element is None else _list_form(element, pairs=False)
    if added is None and removed is None:
        return make_delta
    change_added, change_removed = added or _keep_value, removed or _keep_value
    return lambda value, deleted, elements: make_delta(change_added(value), deleted, change_removed(elements))


def _keep_value(value: Any) -> Any:
    return value


def event_form(kind: CqlType, compat: frozenset[str], names: ValueForms = JAVA, *, pairs: bool = False) -> _Form:
    """The function that gives a value the form that the options ask for (TYPES.md); None where it is right as it is.

    Args:
        kind: the value's type.
        compat: the Java connector's wrong forms that are wanted: ``null-udt``, ``hybrid-calendar``, ``list-order``, or ``java``
            for all of them.
        names: the forms of decimals and varints.
        pairs: whether it is a multicell list of a log row; it becomes a list of values.
    """
    if kind.name == "date":
        return hybrid_date if compat & {"java", "hybrid-calendar"} else None
    form = names.form(kind.name)
    if form is not None:
        return None if form.change is None else _make_nullable(form.change)
    inner = [event_form(argument, compat, names) for argument in kind.arguments]
    if kind.name == "udt":
        null = bool(compat & {"java", "null-udt"})
        return _udt_form(list(zip(kind.field_names, inner, strict=True)), null=null) if null or any(inner) else None
    if pairs and compat & {"java", "list-order"}:
        return _signed_list_form(inner[0])
    if not any(inner):
        return list_values if pairs else None
    if kind.name in {"list", "set", "vector"}:
        return _list_form(inner[0], pairs=pairs)
    if kind.name == "map":
        entry = _struct_form([("key", inner[0]), ("value", inner[1])])
        return _list_form(entry, pairs=False)
    return _struct_form([(f"field_{index}", form) for index, form in enumerate(inner)])


def _make_nullable(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else change(value)


def _struct_form(members: list[tuple[str, _Form]]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        return (
            None
            if value is None
            else {name: form(value.get(name)) if form else value.get(name) for name, form in members}
        )

    return convert


def _udt_form(members: list[tuple[str, _Form]], *, null: bool) -> Callable[[Any], Any]:
    whole = _struct_form(members)

    def convert(value: Any) -> Any:
        result = whole(value)
        if null and result is not None and all(part is None or part == [] for part in result.values()):
            return None
        return result

    return convert


def _list_form(form: _Form, *, pairs: bool) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        items = list_values(value) if pairs else value
        return items if items is None or form is None else [form(item) for item in items]

    return convert


def _signed_list_form(form: _Form) -> Callable[[Any], Any]:
    """Java compares the two halves of uuids as signed numbers, which is not the order of the list."""
    convert_all = _list_form(form, pairs=True)

    def order(pair: tuple[bytes, Any]) -> tuple[int, int]:
        raw = pair[0]
        return int.from_bytes(raw[:8], signed=True), int.from_bytes(raw[8:], signed=True)

    def convert(value: Any) -> Any:
        return None if value is None else convert_all(sorted(value, key=order))

    return convert


def hybrid_date(days: int | None) -> int | None:
    """For a date before 1582-10-15: the day that has its year, month and day in the Julian calendar; in days since 1970."""
    if days is None or days >= _CUTOVER:
        return days
    # Years that begin with March: the leap day is their last.
    shifted = days + 719_468
    era, of_era = divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    year = year_of_era + era * 400
    return 365 * year + year // 4 + of_year - 719_470
