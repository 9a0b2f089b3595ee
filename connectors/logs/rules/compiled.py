"""Rules as code: one generated function for each group, and a set of expressions that says which groups can accept a line.

A generated function keeps the fields of the record in local variables as long as the rules say which fields there are; from the
first step that leaves this open, in a dict. It returns the rows of a line, or None if the group does not accept it; why it
does not is found out by running the steps one by one (``interpreted.py``), which lines that no group accepts are worth.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import re2

from connectors.codegen import CodeBuilder, unpack_names
from connectors.logs.rules.heads import make_head_finder
from connectors.logs.rules.plans import (
    ArrangeFields,
    ChangeValue,
    DropRecord,
    ExtractFields,
    KeepRecord,
    RecordPlan,
    RowColumn,
    SaveRow,
    SplitRecord,
    UniqueRecords,
    read_or_null,
)
from connectors.logs.rules.records import (
    LINE,
    ORIGIN_FIELDS,
    Dropped,
    FieldName,
    LineOrigin,
    Record,
    StepFailed,
    name_of,
)
from connectors.logs.rules.tools.interpreted import Failure, explain_line
from connectors.logs.rules.types import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from connectors.logs.rules.built import BuiltGroup, BuiltRules, BuiltStep
    from connectors.schema import Schema

#: What a group makes of a line.
Rows = list[Record | Dropped]
#: Memory that the set of expressions may take, bytes.
_SET_MEMORY: Final = 64 * 1024 * 1024
#: With fewer expressions the set costs more than it saves.
_FEWEST: Final = 3


#: The rows of each table that accepts a line; none if no table does.
TableRows = list[tuple[str, Rows]]


class Finder(NamedTuple):
    """Says which groups can accept a line.

    Attributes:
        find: line -> indexes of ``needed``, in any order; None if every group has to be tried. None if there are too few groups
            for that.
        needed: the numbers of groups that have an expression.
        always: the numbers of groups that have none.
    """

    find: Callable[[str], Sequence[int] | None] | None
    needed: list[int]
    always: list[int]


class CompiledRules(NamedTuple):
    """A rule set as functions. No call blocks, and none takes unbounded time for a line.

    Attributes:
        apply: line and origin -> the rows of each table that accepts the line; [] if none does.
        schemas: of the rows of each table.
        rules: what they were made of.
        finder: says which groups can accept a line.
    """

    apply: Callable[[str, LineOrigin], TableRows]
    schemas: dict[str, Schema]
    rules: BuiltRules
    finder: Finder

    def explain(self, line: str, origin: LineOrigin) -> list[Failure]:
        """For a line that no group accepts: where it failed in each group, and why."""
        return explain_line(self.rules, line, origin)[1]


def compile_rules(rules: BuiltRules) -> CompiledRules:
    """The functions of a rule set; takes about 10 ms for each group."""
    groups = [(group.table, compile_group(group)) for group in rules.groups]
    finder = _make_finder(rules.groups)
    find, needed, always = finder
    everything = range(len(groups))
    max_length = rules.most_characters

    def apply(line: str, origin: LineOrigin) -> TableRows:
        if len(line) > max_length:
            return []
        numbers: Iterable[int] = everything
        indexes = None if find is None else find(line)
        if indexes is not None:
            if len(indexes) == 1 and not always:
                table, function = groups[needed[indexes[0]]]
                rows = function(line, origin)
                return [] if rows is None else [(table, rows)]
            numbers = sorted([*(needed[index] for index in indexes), *always])
        result: TableRows = []
        done = ""
        for number in numbers:
            table, function = groups[number]
            if table != done:
                rows = function(line, origin)
                if rows is not None:
                    result.append((table, rows))
                    done = table
        return result

    return CompiledRules(apply, rules.schemas, rules, finder)


def _make_finder(groups: tuple[BuiltGroup, ...]) -> Finder:
    needed = [number for number, group in enumerate(groups) if group.needle]
    always = [number for number, group in enumerate(groups) if not group.needle]
    needles = [groups[number].needle for number in needed]
    if len(needed) < _FEWEST:
        return Finder(None, needed, always)
    return Finder(make_head_finder(needles) or _make_set_finder(needles), needed, always)


def _make_set_finder(needles: Sequence[str]) -> Callable[[str], Sequence[int] | None] | None:
    """Looks for all expressions in one pass; None if they take too much memory."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _SET_MEMORY
    expressions = re2.Set.SearchSet(options)
    try:
        for needle in needles:
            expressions.Add(needle)
        expressions.Compile()
    except re2.error:
        return None
    match = expressions._set.Match  # noqa: SLF001 - its wrapper costs as much again

    def find(line: str) -> Sequence[int] | None:
        # RE2 and ``re`` differ in what they take for white space and for the end of a string with these characters.
        if "\v" in line or "\n" in line:
            return None
        # RE2 says that nothing matches also when it runs out of memory.
        return match(line.encode("utf-8", "surrogatepass")) or None

    return find


def compile_group(group: BuiltGroup) -> Callable[[str, LineOrigin], Rows | None]:
    """The function of one group: line and origin -> rows, or None if the group does not accept the line."""
    return _write_group(group).code.function("make_rows", f"log-rules-{group.table}-{group.name}")


class RowFunction(NamedTuple):
    """The function of a group that makes exactly one row of each line that it accepts.

    Groups that differ in their expressions alone share one: what all lines run through stays in the processor's cache.

    Attributes:
        make: line, origin, identity and ``matches`` -> the row with its identity, or None if the group does not accept the
            line.
        matches: the group's expressions.
        with_origin: whether it looks at the origin; if not, that may be anything.
    """

    make: Callable[[str, LineOrigin, str, tuple[Any, ...]], Record | None]
    matches: tuple[Any, ...]
    with_origin: bool


def compile_rows(groups: Iterable[BuiltGroup], id_column: str) -> list[RowFunction | None]:
    """Each group as a function that makes one row, for lines that no other group can accept.

    Args:
        groups: the groups.
        id_column: the column that gets the identity, behind the group's.

    Returns:
        The functions; None for a group that may make several rows of a line, or none.
    """
    makers: dict[tuple[Any, ...], Callable[..., Record | None]] = {}
    functions: list[RowFunction | None] = []
    for group in groups:
        if any(
            not step.is_plain or isinstance(step.plan, SplitRecord | UniqueRecords | DropRecord) for step in group.steps
        ):
            functions.append(None)
            continue
        writer = _write_group(group, id_column)
        code = writer.code
        # What a function was made with lives as long as it: no other value has its id.
        key = ("\n".join(code.lines), *((name, id(value)) for name, value in code.names.items()))
        make = makers.get(key)
        if make is None:
            make = makers[key] = code.function("make_row", f"log-row-{group.table}-{group.name}")
        with_origin = any(re.search(r"\borigin\b", line) for line in code.lines[1:])
        functions.append(RowFunction(make, tuple(writer.matches), with_origin))
    return functions


def _write_group(group: BuiltGroup, id_column: str = "") -> _GroupWriter:
    writer = _GroupWriter(
        CodeBuilder(StepFailed=StepFailed, Dropped=Dropped, read_text=read_text, refuse=_refuse_column), id_column
    )
    writer.begin()
    for step in group.steps:
        writer.write_step(step)
    writer.end()
    return writer


class _GroupWriter:
    """Writes the code of one group, step by step.

    Args:
        code: gets the source.
        id_column: where the function makes one row, the column of its identity; "" where it makes a list.

    Attributes:
        code: the source.
        matches: what a function that makes one row gets as ``matches``.
    """

    def __init__(self, code: CodeBuilder, id_column: str = "") -> None:
        self.code = code
        self._id_column = id_column
        self.matches: list[Any] = []
        #: The variable of each field, in order; None while the record is in the dict ``record``.
        self._variables: dict[str, str] | None = {LINE: "line"}
        #: Variables that hold strings.
        self._strings = {"line"}
        #: Variables that hold strings or None.
        self._nullable_strings: set[str] = set()
        self._depth = 2
        self._loops = False

    def begin(self) -> None:
        """The head of the function."""
        if self._id_column:
            self.code.add(0, "def make_row(line, origin, identity, matches):")
            self.code.add(1, "try:")
            return
        self.code.add(0, "def make_rows(line, origin):")
        self.code.add(1, "try:")
        self.code.add(2, "rows = []")

    def end(self) -> None:
        """The end of the function, behind the last step, which has added the row."""
        if not self._id_column:
            self.code.add(2, "return rows or None")
        self.code.add(1, "except (StepFailed, RecursionError):")  # the latter for a document that is nested too deep
        self.code.add(2, "return None")

    def write_step(self, step: BuiltStep) -> None:
        """One step."""
        plan = step.plan
        if isinstance(plan, UniqueRecords):
            self._write_unique(plan)
        elif isinstance(plan, SplitRecord):
            self._write_split(step)
        elif not step.is_plain:
            self._write_conditional(step)
        elif isinstance(plan, SaveRow):
            self._write_save(plan)
        elif isinstance(plan, KeepRecord):
            self._write_keep(plan)
        elif isinstance(plan, DropRecord):
            self._add_line(f"rows.append({self.code.bind('dropped', Dropped(plan.reason))})")
            self._add_line(self._next_record())
        elif isinstance(plan, ExtractFields) and self._variables is not None:
            self._write_extract(plan, self._variables)
        elif isinstance(plan, ChangeValue):
            self._write_change(plan)
        elif isinstance(plan, ArrangeFields) and self._variables is not None:
            self._variables = {new: self._variables[old] for new, old in plan.arrange(tuple(self._variables))}
        else:
            self._write_single(step, plan)

    def _add_line(self, line: str) -> None:
        self.code.add(self._depth, line)

    def _next_record(self) -> str:
        """The statement that leaves the present record."""
        if self._id_column:
            return "return None"
        return "continue" if self._loops else "return rows or None"

    def _use_dict(self) -> None:
        """Put the record into a dict."""
        if self._variables is not None:
            members = ", ".join(f"{name!r}: {variable}" for name, variable in self._variables.items())
            self._add_line(f"record = {{{members}}}")
            self._variables = None

    def _field_expression(self, field: FieldName) -> str:
        """An expression for the value of a field of the variables."""
        if isinstance(field, str) and field in ORIGIN_FIELDS and field not in (self._variables or {}):
            return f"origin.{ORIGIN_FIELDS[field]}"
        variables = self._variables or {}
        return variables[name_of(variables, field)]

    def _write_extract(self, plan: ExtractFields, variables: dict[str, str]) -> None:
        expression = self._field_expression(plan.source)
        if expression not in self._strings:
            self._add_line(f"text = {expression} if type({expression}) is str else read_text({expression})")
            expression = "text"
        new = {name: self.code.new_name("value") for name in plan.names}
        targets = "(" + "".join(f"{variable}, " for variable in new.values()) + ")"
        if plan.match is not None:
            self._add_line(f"match = {self._bind_match(plan.match)}({expression})")
            self._add_line("if match is None:")
            self.code.add(self._depth + 1, "return None")
            self._add_line(f"{targets} = match.groups()")
            for name, variable in new.items():
                (self._nullable_strings if name in plan.nullable else self._strings).add(variable)
        else:
            self._add_line(f"{targets} = {self.code.bind('extract', plan.extract)}({expression})")
        names = plan.shape_after(tuple(variables)) or ()
        self._variables = {name: new.get(name) or variables[name] for name in names}

    def _bind_match(self, match: Callable[[str], Any]) -> str:
        if not self._id_column:
            return self.code.bind("match", match)
        self.matches.append(match)
        return f"matches[{len(self.matches) - 1}]"

    def _write_change(self, plan: ChangeValue) -> None:
        if self._variables is None:
            change = self.code.bind("change", plan.apply)
            self._add_line(f"record = {change}(record, origin)[0]")
            return
        arguments = (
            f"{self._field_expression(plan.source)}, origin"
            if plan.with_origin
            else self._field_expression(plan.source)
        )
        variable = self.code.new_name("value")
        self._add_line(f"{variable} = {self.code.bind('change', plan.change)}({arguments})")
        target = plan.target or name_of(self._variables, plan.source)
        self._variables[target] = variable

    def _write_keep(self, plan: KeepRecord) -> None:
        if self._variables is None:
            self._add_line(f"if not {self.code.bind('passes', plan.passes)}(record, origin):")
        else:
            self._add_line(f"if not {self.code.bind('test', plan.test)}({self._field_expression(plan.source)}):")
        self.code.add(self._depth + 1, self._next_record())

    def _write_single(self, step: BuiltStep, plan: RecordPlan) -> None:
        """A step that makes one record of one."""
        after = plan.shape_after(tuple(self._variables)) if self._variables is not None else None
        self._use_dict()
        self._add_line(f"record = {self.code.bind(step.operator, plan.apply)}(record, origin)[0]")
        if after is not None:
            stem = self.code.new_name("field") + "_"
            self._add_line(f"{unpack_names(stem, len(after))} = record.values()")
            self._variables = {name: f"{stem}{index}" for index, name in enumerate(after)}

    def _write_conditional(self, step: BuiltStep) -> None:
        """A step that is not always done, or may fail: it makes one record of one, or none, or ends it on purpose."""
        self._use_dict()
        self._add_line(f"results = {self.code.bind(step.operator, step.run)}(record, origin)")
        self._add_line("if not results:")
        self.code.add(self._depth + 1, self._next_record())
        self._add_line("record = results[0]")
        self._add_line("if type(record) is Dropped:")
        self.code.add(self._depth + 1, "rows.append(record)")
        self.code.add(self._depth + 1, self._next_record())

    def _write_split(self, step: BuiltStep) -> None:
        """A step that makes any number of records of one; what follows is done for each."""
        self._use_dict()
        self._add_line(f"for record in {self.code.bind(step.operator, step.run)}(record, origin):")
        self._depth += 1
        self._loops = True

    def _write_unique(self, plan: UniqueRecords) -> None:
        """Ends the loops, and begins one over the records that are left."""
        if not self._loops:
            return
        records = self.code.new_name("records")
        self._add_line(f"{records}.append(record)")
        self.code.lines.insert(3, f"        {records} = []")  # behind the function's head, before all loops
        self._depth = 2
        self._add_line(f"for record in {self.code.bind('unique', plan.apply_all)}({records}, origin):")
        self._depth += 1

    def _write_save(self, plan: SaveRow) -> None:
        members = ", ".join(f"{column.name!r}: {self._write_column(column)}" for column in plan.columns)
        if self._id_column:
            self._add_line(f"return {{{members}, {self._id_column!r}: identity}}")
            return
        self._add_line(f"rows.append({{{members}}})" if self._loops else f"return [{{{members}}}]")

    def _write_column(self, column: RowColumn) -> str:
        """An expression for a column's value; as ``read_column``, without the reason where it fails."""
        value = self._write_source(column)
        if value is None:
            return "None"
        convert = self.code.bind("convert", column.convert)
        converted = f"{convert}({value}, origin)" if column.with_origin else f"{convert}({value})"
        missing = "None" if column.optional else "refuse()"
        if value in self._strings:
            return value if column.plain else f"{converted} if {value} else {missing}"
        if column.plain and value in self._nullable_strings:
            return value if column.optional else f"{value} if {value} is not None else refuse()"
        if column.plain:
            return f"{value} if type({value}) is str else {missing} if {value} is None else {converted}"
        return f"{converted} if {value} is not None and {value} != '' else {missing}"

    def _write_source(self, column: RowColumn) -> str | None:
        """A variable with the value of a column's field; None if the record never has it."""
        if self._variables is not None:
            try:
                return self._field_expression(column.source)
            except StepFailed:
                return None  # the column is optional, or the rule set would have been refused
        variable = self.code.new_name("value")
        if isinstance(column.source, str) and column.source not in ORIGIN_FIELDS:
            self._add_line(f"{variable} = record.get({column.source!r})")
        else:
            read, source = self.code.bind("read", read_or_null), self.code.bind("source", column.source)
            self._add_line(f"{variable} = {read}(record, {source}, origin)")
        return variable


def _refuse_column() -> Any:
    raise StepFailed("a column has no value")
