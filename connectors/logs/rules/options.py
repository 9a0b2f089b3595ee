"""How operators declare their options: a field of the class for each, with its type, default and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from connectors.logs.rules.plans import Plan


class Operator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The options of one step. A subclass is an operator; its docstring and its fields' descriptions are the reference."""

    def make_plan(self) -> Plan:
        """The plan of the step.

        Raises:
            OperatorOptionInvalid: an option is wrong.
        """
        raise NotImplementedError


class OptionText(NamedTuple):
    """One option of an operator as its reference shows it.

    Attributes:
        name: as rules write it.
        type: what a value is.
        default: as JSON; "" if the option is required.
        text: what it does.
    """

    name: str
    type: str
    default: str
    text: str


def describe_options(form: type[msgspec.Struct]) -> list[OptionText]:
    """The options of an operator, in order of their declaration."""
    info = msgspec.inspect.type_info(form)
    if not isinstance(info, msgspec.inspect.StructType):
        raise TypeError(f"{form} declares no options")
    return [_describe_option(field) for field in info.fields]


def _describe_option(field: msgspec.inspect.Field) -> OptionText:
    kind, description = field.type, ""
    if isinstance(kind, msgspec.inspect.Metadata):
        description = str((kind.extra_json_schema or {}).get("description", ""))
        kind = kind.type
    default = ""
    if not field.required:
        value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        default = msgspec.json.encode(value).decode()
    return OptionText(field.encode_name, _type_text(kind), default, description)


def _type_text(kind: msgspec.inspect.Type) -> str:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _type_text(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        names = [_type_text(member) for member in kind.types if not isinstance(member, msgspec.inspect.NoneType)]
        return " or ".join(names)
    if isinstance(kind, msgspec.inspect.LiteralType):
        return ", ".join(map(str, kind.values))
    if isinstance(kind, msgspec.inspect.ListType):
        return "list"
    if isinstance(kind, msgspec.inspect.DictType):
        return "map"
    names_of_types = {msgspec.inspect.StrType: "string", msgspec.inspect.IntType: "number"}
    return names_of_types.get(type(kind), "true or false")
