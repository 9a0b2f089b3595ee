"""The options that a package reads, and the origins of the fields of its settings: looked up in its source.

An option counts as read where its name is used in an expression, by a constant or as it is: not where it is declared, and not
where a complaint about it is worded.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from connectors.options import KeyGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Calls that declare an option or word a complaint about it.
_DECLARATIONS: Final = frozenset(
    {"ConfigKey", "_key", "_accepted", "_flag", *(name for name in vars(KeyGroup) if not name.startswith("__"))}
)
_COMPLAINTS: Final = frozenset({"complain", "warn", "invalid", "ConfigProblem"})
_SETTINGS: Final = ("Settings", "Options", "Login")
#: Names of the parameters and local functions by which a function gets at options.
_SOURCES: Final = frozenset({"config", "get", "word", "properties", "options", "raw"})


class Field(NamedTuple):
    """A field of settings: ``Class.field``, whether it has a default, and whether an option is in its expression."""

    name: str
    default: bool
    from_option: bool


def modules_of(package: str) -> list[ModuleType]:
    """The modules of a package, imported; of a module itself."""
    top = importlib.import_module(package)
    names = [package]
    if hasattr(top, "__path__"):
        names += [module.name for module in pkgutil.walk_packages(top.__path__, f"{package}.")]
    return [importlib.import_module(name) for name in names]


def read_options(modules: Iterable[ModuleType], prefixes: Iterable[str] = ("",)) -> set[str]:
    """The strings that these modules use outside of declarations and complaints; each also behind each prefix."""
    strings: set[str] = set()
    for module in modules:
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        for node in _used(tree):
            value = _string(node, vars(module))
            if value is not None:
                strings.add(value)
    return {prefix + string for prefix in ("", *prefixes) for string in strings}


def fields_of(module: ModuleType) -> Iterator[Field]:
    """The fields of the settings that a module's functions build of a ``config``."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and "config" in {argument.arg for argument in function.args.args}:
            sources = _sources(function)
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    kind = vars(module).get(call.func.id)
                    if inspect.isclass(kind) and kind.__name__.endswith(_SETTINGS):
                        yield from _fields(kind, call, sources)


def _fields(kind: type[Any], call: ast.Call, sources: frozenset[str]) -> Iterator[Field]:
    names, defaults = _declared(kind)
    arguments = dict(zip(names, call.args, strict=False)) | {
        keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None
    }
    for name in names:
        node = arguments.get(name)
        reads = node is not None and any(isinstance(part, ast.Name) and part.id in sources for part in ast.walk(node))
        yield Field(f"{kind.__name__}.{name}", name in defaults, reads)


def _declared(kind: type[Any]) -> tuple[tuple[str, ...], set[str]]:
    if issubclass(kind, msgspec.Struct):
        names, defaults = kind.__struct_fields__, kind.__struct_defaults__
        return names, {
            name
            for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True)
            if default is not msgspec.NODEFAULT
        }
    if dataclasses.is_dataclass(kind):
        missing = dataclasses.MISSING
        return tuple(field.name for field in dataclasses.fields(kind)), {
            field.name
            for field in dataclasses.fields(kind)
            if field.default is not missing or field.default_factory is not missing
        }
    return tuple(getattr(kind, "_fields", ())), set(getattr(kind, "_field_defaults", ()))


def _sources(function: ast.FunctionDef) -> frozenset[str]:
    """The names in a function that hold options, or what was made of them."""
    arguments = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    sources = (arguments | {"get", "word"}) & _SOURCES | (arguments if "config" in arguments else set())
    before = -1
    while len(sources) != before:
        before = len(sources)
        for node in ast.walk(function):
            value, targets = (
                getattr(node, "value", None),
                getattr(node, "targets", None) or [getattr(node, "target", None)],
            )
            if isinstance(node, ast.For):
                value, targets = node.iter, [node.target]
            if (
                isinstance(node, ast.Assign | ast.AnnAssign | ast.For)
                and value is not None
                and _mentions(value, sources)
            ):
                sources |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and any(_mentions(argument, sources) for argument in node.args)
            ):
                sources |= {node.func.value.id}  # a list that grows
    return frozenset(sources)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _used(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            called = getattr(child.func, "id", None) or getattr(child.func, "attr", None) or ""
            if called in _DECLARATIONS or called.endswith(("_key", "_keys")):
                continue
            if called in _COMPLAINTS:
                continue
        if isinstance(child, ast.AnnAssign | ast.Assign) and isinstance(
            child.value, ast.Constant | ast.Attribute | ast.Name
        ):
            continue  # a constant with the name of an option
        if isinstance(child, ast.JoinedStr) and any(
            isinstance(part, ast.Constant) and " " in str(part.value) for part in child.values
        ):
            continue  # a sentence
        yield child
        yield from _used(child)


def _string(node: ast.AST, names: dict[str, Any]) -> str | None:
    value: object = None
    if isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        value = names.get(node.id)
    elif (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and isinstance(names.get(node.value.id), ModuleType)
    ):
        value = vars(names[node.value.id]).get(node.attr)
    elif isinstance(node, ast.JoinedStr):
        parts = [_string(part.value if isinstance(part, ast.FormattedValue) else part, names) for part in node.values]
        if parts[0] is None:
            parts[0] = ""  # a prefix that a caller gives
        value = None if None in parts else "".join(part for part in parts if part is not None)
    return value if isinstance(value, str) else None
