"""Transforms on the fast path (``connectors.wire``): what a chain makes of a table's records, known before there is any.

A ``SymbolicRecord`` stands for all inserts and updates of one table. A transform whose effect on them is the same for each
gives another one (``Transform.rewrite``); ``RewrittenForm`` then takes what the connector builds and makes the new value of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from connectors.wire import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.api import Header
    from connectors.wire import Encoding, RowForm, Shape

    Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SymbolicRecord:
    """All inserts and updates of one table.

    Attributes:
        topic: where they go.
        headers: those of each.
        value: their values.
        paths: by member of a value that a transform has made, where it comes from in the connector's value; None: the value is
            the connector's.
    """

    topic: str
    headers: tuple[Header, ...]
    value: Encoding
    paths: Mapping[str, Path] | None = None


def marker_at(shape: Shape, path: Path) -> Literal["row", "event"] | Fixed | None:
    """How often the member at ``path`` changes; None for a struct, or if there is no such member."""
    item: Any = shape
    for name in path:
        if isinstance(item, Fixed):
            return Fixed(None) if item.value is None else None
        item = item.get(name) if not isinstance(item, str) and item is not None else None
    return item if isinstance(item, str | Fixed) else None  # type: ignore[return-value]


class RewrittenForm:
    """A ``RowForm`` for the connector's values that makes the values of a transformed record.

    Args:
        form: of the transformed values.
        record: the transformed record, with ``paths``.
        original: the connector's values.
    """

    def __init__(self, form: RowForm, record: SymbolicRecord, original: Encoding) -> None:
        paths = record.paths or {}
        self._form = form
        self._paths = paths
        self._targets = {path: name for name, path in paths.items()}
        self._original = original.schema
        self._built: dict[Path, Mapping[str, str]] = {}
        self.names = form.names
        self.constants: Callable[..., tuple[Any, ...]] = form.constants
        self.events = tuple(paths[path[0]] for path in form.events)
        self.unpack = form.unpack

    def unscaled(self, path: Path) -> bool:
        """See ``RowForm``."""
        target = self._targets.get(path)
        return target is not None and self._form.unscaled((target,))

    def leaf(self, path: Path, name: str, *, nullable: bool = True, checked: bool = False) -> str:
        """See ``RowForm``; "None" for a member that the transform has left out."""
        target = self._targets.get(path)
        if target is None:
            return "None"
        if nullable and self._refuses_null(path):
            required = f"{self._form.unpack.partition(',')[0]}_required"
            self.names[required] = _required
            name = f"{required}({name})"
        return self._form.leaf((target,), name, nullable=nullable, checked=checked)

    def _refuses_null(self, path: Path) -> bool:
        """Whether transforms refuse a null there, as Connect does where a required field has a default."""
        schema: Any = self._original
        for name in path:
            schema = schema.field(name).schema
        return schema.default is not None and not schema.optional

    def build(self, path: Path, members: Mapping[str, str]) -> str:
        """See ``RowForm``.

        Raises:
            ValueError: the record is a deletion.
        """
        if path:
            self._built[path] = dict(members)
            return "True"
        if members["after"] == "None":
            raise ValueError("what becomes of a deletion depends on more than the record")
        values = {
            name: self._built[source[:-1]][source[-1]]
            for name, source in self._paths.items()
            if source[:-1] in self._built and source[-1] in self._built[source[:-1]]
        }
        return self._form.build((), values)

    def array(self, path: Path, elements: Sequence[str]) -> str:
        """See ``RowForm``: only partition updates have them, which no transform rewrites."""
        del elements
        raise ValueError(f"no array {path}")

    def encode(self, rows: list[Any]) -> list[bytes]:
        """See ``RowForm``."""
        return self._form.encode(rows)


def _required(value: Any) -> Any:
    if value is None:
        raise ValueError("null where the transform refuses it")
    return value
