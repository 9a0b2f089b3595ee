r"""A rule set as it is written, in YAML or JSON: tables, their ordered groups, and the ordered steps of each group.

```yaml
name: shop
tables:
  - name: requests
    groups:
      - name: access
        steps:
          - regexExtract: {pattern: '^(?P<host>\S+) (?P<path>\S+) (?P<status>[0-9]+)$'}
          - saveAs: {columns: [{name: host}, {name: path}, {name: status, type: int}]}
```
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import yaml
from msgspec import Meta

from connectors.linear_regex import MOST_CHARACTERS
from connectors.logs.rules.errors import RuleProblem, RulesInvalid
from connectors.logs.rules.operators import OPERATORS
from connectors.logs.rules.operators.conditions import Condition

if TYPE_CHECKING:
    from connectors.logs.rules.options import Operator

#: The table of lines that no group accepts.
UNKNOWN_TABLE: Final = "unknown_table"
_TABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STEP_OPTIONS: Final = ("when", "ignoreFailure")
_AT: Final = re.compile(r" - at `\$\.?([^`]*)`\Z")
#: The longest rule set, characters.
MOST_DOCUMENT: Final = 4_194_304

T = TypeVar("T")


class LogRuleStep(msgspec.Struct, frozen=True):
    """One step of a group.

    Attributes:
        operator: its name.
        options: its options.
        when: the condition under which it is done; None for always.
        ignore_failure: whether a record that it can't handle stays as it is.
    """

    operator: str
    options: Operator
    when: Condition | None = None
    ignore_failure: bool = False


class LogRuleGroup(msgspec.Struct, frozen=True):
    """One way to make rows of a table.

    Attributes:
        name: unique in its table.
        steps: in order; the last is saveAs.
    """

    name: str
    steps: tuple[LogRuleStep, ...]


class LogRuleTable(msgspec.Struct, frozen=True):
    """A table and the groups that make its rows: the first group that accepts a line makes the rows of that line.

    Attributes:
        name: its name.
        groups: in order.
        version: raised when its columns change.
    """

    name: str
    groups: tuple[LogRuleGroup, ...]
    version: int = 1


class GoldenLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line with the rows that it must make.

    Attributes:
        line: the line.
        rows: by table; {} for a line that no group accepts.
    """

    line: str
    rows: dict[str, list[dict[str, Any]]]


class LogRuleSet(msgspec.Struct, frozen=True):
    """The rules of one log.

    Attributes:
        name: for messages.
        tables: in order.
        most_characters: the longest line that is given to rules; longer ones go to ``unknown_table``.
        golden: lines whose rows must not change.
    """

    name: str
    tables: tuple[LogRuleTable, ...]
    most_characters: int = 65_536
    golden: tuple[GoldenLine, ...] = ()


class _SetForm(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    tables: list[Any]
    name: str = ""
    most_characters: Annotated[int, Meta(ge=1, le=MOST_CHARACTERS)] = 65_536
    golden: list[Any] = []


class _TableForm(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    groups: list[Any]
    version: Annotated[int, Meta(ge=1)] = 1


class _GroupForm(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    steps: list[Any]


#: The loader in C where PyYAML has it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeys(_Loader):  # type: ignore[misc]  # chosen at import
    """Refuses a key that is there twice, of which YAML would take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        names: set[str] = set()
        for key, _ in node.value:
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


def parse_rules(document: str, name: str = "rules") -> LogRuleSet:
    """The rule set in a YAML or JSON document.

    Args:
        document: the document.
        name: its name, if it does not say one.

    Raises:
        RulesInvalid: with every complaint about its form and its options' types. ``build_rules`` checks the rest.
    """
    return read_rules(decode_rules(document, name), name)


def read_rules(document: Any, name: str = "rules") -> LogRuleSet:
    """As ``parse_rules``, for a document that is decoded already."""
    return _RulesParser(name).parse(document)


def decode_rules(document: str, name: str = "rules") -> Any:
    """The document in a YAML or JSON text, whatever it says.

    Raises:
        RulesInvalid: it is neither.
    """
    problem = ""
    if len(document) > MOST_DOCUMENT:
        problem = f"the document is longer than {MOST_DOCUMENT} characters"
    else:
        try:
            return yaml.load(document, Loader=_UniqueKeys)  # noqa: S506 - a safe loader; JSON is YAML
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            problem = f"line {line} is not YAML or JSON: {error.problem or error}"
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            problem = f"this is not YAML or JSON: {error}"
    raise RulesInvalid(name, [RuleProblem("", "", 0, "", "", problem)])


class _RulesParser:
    """Goes through a decoded document, and collects what is wrong."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._problems: list[RuleProblem] = []
        self._table = ""
        self._group = ""
        self._step = 0
        self._operator = ""

    def parse(self, document: Any) -> LogRuleSet:
        form = self._convert_document(document, _SetForm)
        if form is None:
            raise RulesInvalid(self._name, self._problems)
        self._name = form.name or self._name
        tables = [table for table in map(self._parse_table, form.tables) if table is not None]
        self._table = ""
        self._refuse_repetition("table", [table.name for table in tables])
        if not form.tables:
            self._add_problem("", "there is no table; add one with its groups")
        golden = [
            line for line in (self._convert_document(line, GoldenLine) for line in form.golden) if line is not None
        ]
        if self._problems:
            raise RulesInvalid(self._name, self._problems)
        return LogRuleSet(self._name, tuple(tables), form.most_characters, tuple(golden))

    def _parse_table(self, document: Any) -> LogRuleTable | None:
        self._table, self._group, self._step, self._operator = _name_in(document), "", 0, ""
        form = self._convert_document(document, _TableForm)
        if form is None:
            return None
        if _TABLE_NAME.match(form.name) is None:
            self._add_problem("name", f"{form.name!r} is not made of letters, digits and underscores")
        if form.name == UNKNOWN_TABLE:
            self._add_problem("name", f"{UNKNOWN_TABLE} is where lines go that no group accepts; choose another name")
        if not form.groups:
            self._add_problem("groups", "there is no group; add one with its steps")
        groups = [group for group in map(self._parse_group, form.groups) if group is not None]
        self._group = ""
        self._refuse_repetition("group", [group.name for group in groups])
        return LogRuleTable(form.name, tuple(groups), form.version)

    def _parse_group(self, document: Any) -> LogRuleGroup | None:
        self._group, self._step, self._operator = _name_in(document), 0, ""
        form = self._convert_document(document, _GroupForm)
        if form is None:
            return None
        steps: list[LogRuleStep] = []
        for number, step_document in enumerate(form.steps, 1):
            self._step, self._operator = number, ""
            step = self._parse_step(step_document)
            if step is not None:
                steps.append(step)
        self._step, self._operator = 0, ""
        return LogRuleGroup(form.name, tuple(steps))

    def _parse_step(self, document: Any) -> LogRuleStep | None:
        if not isinstance(document, dict):
            self._add_problem("", "a step is an operator with its options, such as trim: {field: name}")
            return None
        names = [name for name in document if name not in _STEP_OPTIONS]
        if len(names) != 1 or names[0] not in OPERATORS:
            shown = ", ".join(map(str, names)) or "nothing"
            self._add_problem(
                "",
                f"a step has one operator, and when or ignoreFailure next to it; here is {shown}. Operators are "
                f"{', '.join(OPERATORS)}",
            )
            return None
        self._operator = names[0]
        options = self._convert_document(document[self._operator] or {}, OPERATORS[self._operator])
        when = self._convert_document(document["when"], Condition, "when") if document.get("when") is not None else None
        ignore = document.get("ignoreFailure", False)
        if not isinstance(ignore, bool):
            self._add_problem("ignoreFailure", f"it is true or false, not {ignore!r}")
        return None if options is None else LogRuleStep(self._operator, options, when, ignore is True)

    def _refuse_repetition(self, noun: str, names: list[str]) -> None:
        for name in sorted({name for name in names if names.count(name) > 1}):
            self._add_problem("", f"there are two {noun}s with the name {name!r}; rename one of them")

    def _convert_document(self, document: Any, form: type[T], option: str = "") -> T | None:
        try:
            return msgspec.convert(document, form)
        except msgspec.ValidationError as error:
            message = str(error)
            match = _AT.search(message)
            path = ".".join(part for part in (option, match[1] if match else "") if part)
            message = _AT.sub("", message).replace("Object", "it").replace("`", "")
            names = [field.encode_name for field in msgspec.structs.fields(form)]  # type: ignore[arg-type]
            self._add_problem(path, f"{message}; the options are {', '.join(names)}" if "field" in message else message)
            return None

    def _add_problem(self, option: str, message: str) -> None:
        self._problems.append(RuleProblem(self._table, self._group, self._step, self._operator, option, message))


def _name_in(document: Any) -> str:
    return str(document.get("name", "")) if isinstance(document, dict) else ""
