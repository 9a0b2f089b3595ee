"""Transforms on the fast path (``connectors.wire``): what a chain makes of a table's records, known before there is any.

A ``SymbolicRecord`` stands for all records of one table. Its key and its value are trees that say of each member where it comes
from: from a member of the connector's struct, or it is the same in all records. A transform whose effect is the same for each
record gives another tree (``Transform.rewrite``); ``RewrittenForm`` then takes what the connector builds and puts it there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from connectors.wire import ROW, Encoding, Fixed, Items
from worker.transforms.base import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connectors.api import Header
    from connectors.schema import Schema
    from connectors.wire import RowForm

    Path = tuple[str, ...]
    Node: TypeAlias = "Member | Fixed | Items | Struct"

NULL: Final = Fixed(None)


class Member(NamedTuple):
    """A member that is no struct, taken from the connector's struct.

    Attributes:
        path: where it is there.
        marker: how often it changes.
        null: what a null becomes; None: a transform refuses it.
        present: what any other value becomes; None: it stays.
    """

    path: Path
    marker: Literal["row", "event"]
    null: Fixed | None = NULL
    present: Fixed | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is as the connector gives it."""
        return self.null == NULL and self.present is None


class Struct(NamedTuple):
    """A struct.

    Attributes:
        members: by name, all that its schema has.
        path: the connector's struct that it comes from, and is null with; None: it is always there.
    """

    members: Mapping[str, Node]
    path: Path | None = None


class SymbolicStruct(NamedTuple):
    """The keys or the values of a table's records."""

    schema: Schema
    struct: Struct

    @classmethod
    def of(cls, encoding: Encoding) -> SymbolicStruct:
        """As a connector makes them."""
        return cls(encoding.schema, _struct_of(encoding.schema, encoding.shape, ()))

    @property
    def encoding(self) -> Encoding:
        """The schema and shape for a converter."""
        return Encoding(self.schema, _shape_of(self.struct))


class SymbolicMember(NamedTuple):
    """The keys of a table's records where they are no structs: a member of the connector's struct, or all the same."""

    schema: Schema
    member: Member | Fixed


@dataclass(frozen=True, slots=True)
class SymbolicRecord:
    """All records of one table.

    Attributes:
        topic: where they go.
        headers: those of each; a ``Member`` in place of a value is one of the connector's values, marked ``EVENT``.
        key: their keys; None: all are null.
        value: their values.
        deletions: whether it stands for deletions and tombstones too, or else for inserts and updates only.
    """

    topic: str
    headers: tuple[Header, ...]
    key: SymbolicStruct | SymbolicMember | None
    value: SymbolicStruct
    deletions: bool = True


def shared_paths(headers: Sequence[Header]) -> tuple[Path, ...]:
    """The members of the connector's values that headers show, in order."""
    return tuple(header.value.path for header in headers if isinstance(header.value, Member))


def _struct_of(schema: Schema, shape: Any, path: Path) -> Struct:
    members: dict[str, Node] = {}
    for field in schema.fields:
        item, position = shape[field.name], (*path, field.name)
        if isinstance(item, (Fixed, Items)):
            members[field.name] = item
        elif isinstance(item, str):
            members[field.name] = Member(position, item)  # type: ignore[arg-type]
        else:
            members[field.name] = _struct_of(field.schema, item, position)
    return Struct(members, path)


def _shape_of(struct: Struct) -> Any:
    return {
        name: (_shape_of(node) if isinstance(node, Struct) else node.marker if isinstance(node, Member) else node)
        for name, node in struct.members.items()
    }


# What transforms do to parts of a record. Where one can't be done these raise ValueError.


def change_side(
    record: SymbolicRecord, side: Side, change: Callable[[SymbolicStruct], SymbolicStruct], *, skip_null: bool
) -> SymbolicRecord | None:
    """Change the key or the value; None: only records will do.

    Args:
        record: the record.
        side: what is changed.
        change: gives the new one.
        skip_null: whether null keys, or tombstones, pass unchanged.
    """
    if side is Side.VALUE:
        return replace(record, value=change(record.value), deletions=record.deletions and skip_null)
    if record.key is None:
        return record if skip_null else None
    return replace(record, key=change(record.key)) if isinstance(record.key, SymbolicStruct) else None


def copy_members(symbol: SymbolicStruct, *, replace_null: bool) -> dict[str, Node]:
    """The members of a struct after ``base.struct_copier``."""
    return {
        field.name: copy_member(symbol.struct.members[field.name], field.schema, replace_null=replace_null)
        for field in symbol.schema.fields
    }


def copy_member(node: Node, schema: Schema, *, replace_null: bool) -> Node:
    """A member after ``base.struct_copier``: what a null becomes where there is a default."""
    if schema.default is None or (schema.optional and not replace_null):
        return node
    if isinstance(node, (Struct, Items)):
        raise ValueError("a default of a struct or array")  # noqa: TRY004 - of the configuration
    if isinstance(node, Fixed):
        if node.value is None and not replace_null:
            raise ValueError("null where the transform refuses it")
        return Fixed(schema.default) if node.value is None else node
    if node.null != NULL:
        return node
    return node._replace(null=Fixed(schema.default) if replace_null else None)


def mask_member(node: Node, value: Any) -> Node:
    """A member of which all that is not null becomes ``value``."""
    if isinstance(node, (Struct, Items)):
        raise ValueError("a struct or array can't be masked")  # noqa: TRY004 - of the configuration
    if isinstance(node, Fixed):
        return node if node.value is None else Fixed(value)
    masked = Fixed(value)
    return node._replace(null=node.null if node.null in (None, NULL) else masked, present=masked)


def open_cell(node: Node, name: str) -> Node:
    """The member ``name`` of a struct, or null where there is no struct."""
    inner = node.members[name] if isinstance(node, Struct) else node
    if inner != NULL and not (isinstance(inner, Member) and inner.is_plain):
        raise ValueError("what stands for a struct that is not there is not a null")
    return inner


class RewrittenForm:
    """A ``RowForm`` for the connector's structs that makes those of a transformed record.

    Structs that are still structs are built where the connector builds them; the others are taken apart, and their members
    stand where the outermost struct is built.

    Args:
        form: of the transformed structs.
        struct: how they come from the connector's.
        stem: begins all names.
        deletions: see ``SymbolicRecord``.
    """

    def __init__(self, form: RowForm, struct: Struct, stem: str, *, deletions: bool) -> None:
        self._form = form
        self._struct = struct
        self._stem = f"{stem}_rewritten"
        self._deletions = deletions
        #: By path of the connector's member or struct, the members or the struct made of it, with their paths.
        self._members: dict[Path, list[tuple[Path, Member]]] = {}
        self._structs: dict[Path, tuple[Path, Struct]] = {}
        self._collect(struct, ())
        #: Expressions, by paths of the transformed struct.
        self._leaves: dict[Path, str] = {}
        #: Expressions of members, by paths of the connector's structs.
        self._built: dict[Path, Mapping[str, str]] = {}
        self.names = form.names
        self.names[f"{self._stem}_refuse"] = _refuse_null
        self.unpack = form.unpack
        members = dict(target for targets in self._members.values() for target in targets)
        shared = [members[path] for path in form.events]
        self.events = tuple(member.path for member in shared)
        self.constants: Callable[..., tuple[Any, ...]] = form.constants
        if not all(member.is_plain for member in shared):
            self.constants = lambda *values: form.constants(*map(_converted, shared, values))

    def _collect(self, struct: Struct, target: Path) -> None:
        if struct.path:
            self._structs[struct.path] = (target, struct)
        for name, node in struct.members.items():
            if isinstance(node, Struct):
                self._collect(node, (*target, name))
            elif isinstance(node, Member):
                self._members.setdefault(node.path, []).append(((*target, name), node))
            elif isinstance(node, Items):
                raise ValueError("an array of structs can't be rewritten")  # noqa: TRY004 - of the configuration

    def unscaled(self, path: Path) -> bool:
        """See ``RowForm``."""
        targets = self._members.get(path, ())
        return bool(targets) and all(self._form.unscaled(target) for target, _ in targets)

    def leaf(self, path: Path, name: str, *, nullable: bool = True, checked: bool = False) -> str:
        """See ``RowForm``; "None" for a member that is left out, or a struct that is taken apart."""
        if path in self._structs:
            return self._form.leaf(self._structs[path][0], name, nullable=nullable, checked=checked)
        unscaled = self.unscaled(path)
        for target, member in self._members.get(path, ()):
            exact = checked or (self._form.unscaled(target) and not unscaled)
            self._leaves[target] = self._leaf(target, member, name, nullable=nullable, checked=exact)
        return "None"

    def _leaf(self, target: Path, member: Member, name: str, *, nullable: bool, checked: bool) -> str:
        if member.is_plain:
            return self._form.leaf(target, name, nullable=nullable, checked=checked)
        if member.present is None:
            present = self._form.leaf(target, name, nullable=False, checked=checked)
        else:
            present = self._constant(target, member.present)
        return f"({self._null(target, member)} if {name} is None else {present})" if nullable else present

    def _null(self, target: Path, member: Member) -> str:
        """The expression of what a null becomes."""
        if member.null is None:
            return f"{self._stem}_refuse()"
        return self._form.leaf(target, "None") if member.null == NULL else self._constant(target, member.null)

    def _constant(self, target: Path, fixed: Fixed) -> str:
        name = f"{self._stem}_{len(self.names)}"
        self.names[name] = fixed.value
        return self._form.leaf(target, name, nullable=False, checked=True)

    def build(self, path: Path, members: Mapping[str, str]) -> str:
        """See ``RowForm``; "True" for a struct that is taken apart.

        Raises:
            ValueError: the record is a deletion, and this form is not for them; or a struct is to be taken apart after
                the one around it was built.
        """
        self._built[path] = dict(members)
        if path:
            target = self._structs.get(path)
            return "True" if target is None else self._expression(*target, path)
        if not self._deletions and members.get("after") == "None":
            raise ValueError("what becomes of a deletion depends on more than the record")
        return self._expression((), self._struct, ())

    def _expression(self, target: Path, node: Member | Struct, built: Path) -> str:
        """The expression of a node when the connector's struct at ``built`` is built."""
        if isinstance(node, Member):
            return self._member_expression(target, node, built)
        if node.path is not None and node.path != built:
            return self._struct_expression(node.path)
        return self._form.build(
            target,
            {
                name: self._expression((*target, name), inner, built)
                for name, inner in node.members.items()
                if isinstance(inner, Struct) or (isinstance(inner, Member) and inner.marker == ROW)
            },
        )

    def _member_expression(self, target: Path, member: Member, built: Path) -> str:
        """The expression of a member: null where a struct around it is."""
        around = [self._struct_expression(member.path[:end]) for end in range(len(built) + 1, len(member.path))]
        if "None" in around:
            return self._null(target, member)
        expression = self._leaves[target]
        # A struct that the connector has put into a variable is there.
        tests = [test for test in around if not test.isidentifier()]
        return f"({expression} if {' and '.join(tests)} else {self._null(target, member)})" if tests else expression

    def _struct_expression(self, path: Path) -> str:
        """The connector's expression of a struct."""
        if path[:-1] not in self._built:
            raise ValueError(f"{path} is built after what is around it")
        return self._built[path[:-1]][path[-1]]

    def array(self, path: Path, elements: Sequence[str]) -> str:
        """See ``RowForm``: only partition updates have them, which no transform rewrites."""
        del elements
        raise ValueError(f"no array {path}")

    def encode(self, rows: list[Any]) -> list[bytes]:
        """See ``RowForm``."""
        return self._form.encode(rows)


def _converted(member: Member, value: Any) -> Any:
    """The value after transforms."""
    if value is not None:
        return value if member.present is None else member.present.value
    return _refuse_null() if member.null is None else member.null.value


def _refuse_null() -> Any:
    raise ValueError("null where the transform refuses it")
