"""Functions and classes of users: where they come from, how tasks get them, and the types that their annotations name."""

from __future__ import annotations

import ast
import hashlib
import sys
import types
import typing
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connectors.entry_points import list_entries
from connectors.errors import ConfigInvalid, Fatal
from connectors.options import ConfigKey, ConfigType, Importance, non_empty

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The group of entry points by which packages offer functions.
GROUP: Final = "millrace.functions"
#: Names of the options.
FILE: Final = "python.file"
FUNCTION: Final = "python.function"
_KINDS: Final[Mapping[Any, str]] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    date: "date",
    datetime: "timestamp",
    Decimal: "decimal(38,18)",
}
_MODULES: Final = 64
FILE_KEY: Final = ConfigKey(
    name=FILE,
    type=ConfigType.STRING,
    default=None,
    importance=Importance.HIGH,
    validator=lambda name, value: None if value is None else non_empty(name, value),
    example="/etc/millrace/scores.py",
    doc="A Python file on the driver's machine, which sends its text to the tasks. Modules that it imports must be installed "
    "on every machine that runs tasks.",
)
FUNCTION_KEY: Final = ConfigKey(
    name=FUNCTION,
    type=ConfigType.STRING,
    importance=Importance.HIGH,
    validator=non_empty,
    example="score",
    doc="A function or class of the file; without a file `module:name`, or the name of an entry point of the group "
    "`millrace.functions` of an installed package.",
)


@dataclass(frozen=True, slots=True)
class UserCode:
    """A function or class of a user's. Picklable.

    Attributes:
        name: of the function or class; ``a.b`` is an attribute of ``a``.
        path: the file, for messages; empty for a module.
        text: of the file.
        module: that is imported; empty for a file.
    """

    name: str
    path: str = ""
    text: str = ""
    module: str = ""

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.name} of {self.path or self.module}"

    def load(self) -> Any:
        """The function or class. Imports or runs the module once per process.

        Raises:
            Fatal: the module fails, or has no such name.
        """
        try:
            value: Any = import_module(self.module) if self.module else _MODULES_LOADED.get(self.path, self.text)
            for part in self.name.split("."):
                value = getattr(value, part)
        except AttributeError:
            raise Fatal(f"{self.path or self.module} has no {self.name}: correct {FUNCTION}") from None
        except Exception as error:
            raise Fatal(f"{self.path or self.module} can't be loaded: {type(error).__name__}: {error}") from error
        if not callable(value):
            raise Fatal(f"{self.where} is no function and no class: correct {FUNCTION}")
        return value


class _Modules:
    """Modules made of files, by path and text; bounded. A changed file becomes another module."""

    def __init__(self) -> None:
        self._modules: OrderedDict[tuple[str, str], types.ModuleType] = OrderedDict()

    def get(self, path: str, source_code: str) -> types.ModuleType:
        module = self._modules.get((path, source_code))
        if module is None:
            name = f"millrace_user_{hashlib.sha256(f'{path} {source_code}'.encode()).hexdigest()[:16]}"
            module = types.ModuleType(name)
            module.__file__ = path
            sys.modules[name] = module  # dataclasses and pickles look their module up
            try:
                exec(compile(source_code, path, "exec"), module.__dict__)  # noqa: S102 - the code that the user names
            except BaseException:
                del sys.modules[name]
                raise
            self._modules[path, source_code] = module
        self._modules.move_to_end((path, source_code))
        while len(self._modules) > _MODULES:
            _, old = self._modules.popitem(last=False)
            sys.modules.pop(old.__name__, None)
        return module


#: Of this process: Spark gives tasks no other place to keep them.
_MODULES_LOADED: Final = _Modules()


def user_code(file: str | None, function: str) -> UserCode:
    """The code that the options name. Reads the file, runs nothing.

    Raises:
        ConfigInvalid: the file can't be read, is no Python or has no such function; there is no such entry point.
    """
    if not file:
        if ":" in function:
            module, _, name = function.partition(":")
            return UserCode(name, module=module)
        for entry in list_entries(GROUP):
            if entry.name == function:
                return UserCode(entry.attr, module=entry.module)
        offered = ", ".join(sorted(entry.name for entry in list_entries(GROUP))) or "none"
        raise ConfigInvalid(
            f"{FUNCTION}: there is no entry point {function} in the group {GROUP} (there are: {offered}): set {FILE}, or "
            "write module:name"
        )
    try:
        source_code = Path(file).read_text("utf-8")
        tree = ast.parse(source_code, file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{FILE}: {file} can't be read: {error}; it must be on the driver's machine") from error
    except SyntaxError as error:
        raise ConfigInvalid(f"{FILE}: {file}:{error.lineno}: {error.msg}") from error
    names = _list_defined_names(tree)
    if function.partition(".")[0] not in names:
        raise ConfigInvalid(
            f"{FUNCTION}: {file} defines no {function}; it defines {', '.join(sorted(names)) or 'nothing'}"
        )
    return UserCode(function, path=str(file), text=source_code)


def _list_defined_names(tree: ast.Module) -> set[str]:
    """The names that the top level of a module binds."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names


def return_annotation(function: Any) -> Any:
    """The return annotation of a function, or of ``__call__`` of a class; None without one."""
    target = function.__call__ if isinstance(function, type) else function
    try:
        return typing.get_type_hints(target).get("return")
    except (NameError, TypeError):
        return None


def kind_of(annotation: Any) -> str | None:
    """The type (``lookup.values``) that an annotation names; None for those that name none."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(annotation) if part is not type(None)]
        annotation = inner[0] if len(inner) == 1 else None
    return _KINDS.get(annotation) if isinstance(annotation, type) else None


def columns_of(annotation: Any) -> list[tuple[str, str]] | None:
    """Names and types of the columns that a class with annotations (TypedDict, dataclass, NamedTuple) names.

    None if the annotation is no such class, or a member has another type.
    """
    try:
        members = typing.get_type_hints(annotation) if isinstance(annotation, type) else {}
    except (NameError, TypeError):
        return None
    kinds = [(name, kind_of(member)) for name, member in members.items()]
    if not kinds or any(kind is None for _, kind in kinds):
        return None
    return [(name, kind) for name, kind in kinds if kind is not None]


def make_instance(loaded: Any, options: Mapping[str, str]) -> Callable[[Any], Any]:
    """Return the function, or an instance of the class, which gets the step's options if there are some."""
    if not isinstance(loaded, type):
        return loaded  # type: ignore[no-any-return]
    return loaded(dict(options)) if options else loaded()  # type: ignore[no-any-return]
