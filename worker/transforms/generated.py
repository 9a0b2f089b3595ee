"""Functions that are generated for one schema: they take the fields of a struct without a loop over them.

They serve values as they nearly always are: a dict with all fields of its schema. Whatever else comes is left to a function
that goes through the fields one by one, which is also the one that refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.codegen import CodeBuilder, indent_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: The highest number of fields of a generated function: the time to compile longer ones grows faster than their length.
MOST_FIELDS: Final = 1000
#: Sets of names that one ``FrequentMaps`` has functions for, and sets whose maps it counts at a time.
_MOST_KNOWN: Final = 256
#: The longest set of names that gets a function.
_MOST_NAMES: Final = 256
#: How many maps of the same names must come until those get a function: generating one costs as much as some 100 maps.
_OFTEN: Final = 100


class TakenField(NamedTuple):
    """A field of what is built.

    Attributes:
        name: its name there.
        path: the names that lead to its value; where one on the way is null, the field is null.
        default: what stands for a null at the path's end.
        required: whether a null there is left to the slow function.
    """

    name: str
    path: tuple[str, ...]
    default: Any = None
    required: bool = False


def struct_taker(
    fields: Sequence[TakenField], slow: Callable[..., Any], parameters: str = "value"
) -> Callable[..., Any]:
    """A function that builds a dict of fields of its first argument, a struct's value, in order.

    Args:
        fields: what it consists of; no two have the same name.
        slow: gives the same for any value; called where one has not all fields, is no struct, or a required field is null.
        parameters: those of the function; ``slow`` has the same.
    """
    if len(fields) > MOST_FIELDS:
        return slow
    code = CodeBuilder(slow=slow)
    lines = []
    structs: dict[tuple[str, ...], str] = {(): "value"}
    for path in dict.fromkeys(field.path[:end] for field in fields for end in range(1, len(field.path))):
        of = structs[path[:-1]]
        here = structs[path] = f"struct{len(structs)}"
        test = "" if of == "value" else f"None if {of} is None else "
        lines.append(f"{here} = {test}{of}[{path[-1]!r}]")
    items = []
    for number, field in enumerate(fields):
        of = structs[field.path[:-1]]
        expression = f"{of}[{field.path[-1]!r}]"
        if field.required or field.default is not None:
            lines.append(f"item{number} = {'' if of == 'value' else f'None if {of} is None else '}{expression}")
            lines.append(f"if item{number} is None{'' if of == 'value' else f' and {of} is not None'}:")
            if field.default is None:
                lines.append(f"    return slow({parameters})")
            else:
                lines.append(f"    item{number} = {code.bind('default', field.default)}")
            expression = f"item{number}"
        elif of != "value":
            expression = f"None if {of} is None else {expression}"
        items.append(f"{field.name!r}: {expression}")
    code.define(
        f"made({parameters})",
        [
            "try:",
            *indent_lines([*lines, f"return {{{', '.join(items)}}}"]),
            "except (KeyError, TypeError):",
            f"    return slow({parameters})",
        ],
    )
    return code.function("made", "fields of a struct")


def map_taker(names: Sequence[str], kept: Mapping[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that builds a dict of values of its argument, a dict with just the keys ``names``, in that order.

    Args:
        names: all keys.
        kept: those that are taken, with their new names.
    """
    if not names:
        return dict
    values = [f"value{number}" for number in range(len(names))]
    items = [f"{kept[name]!r}: {value}" for name, value in zip(names, values, strict=True) if name in kept]
    code = CodeBuilder()
    code.define("made(value)", [f"{', '.join(values)}, = value.values()", f"return {{{', '.join(items)}}}"])
    return code.function("made", "fields of a map")


class FrequentMaps:
    """Functions for maps without a schema, one for each set of names that comes often.

    Args:
        make: generates the function for maps of just these names, in this order.
        slow: the function for any map.
    """

    __slots__ = ("_counts", "generated", "make", "slow")

    def __init__(
        self, make: Callable[[tuple[str, ...]], Callable[[dict[str, Any]], Any]], slow: Callable[[dict[str, Any]], Any]
    ) -> None:
        self.make = make
        self.slow = slow
        #: What was generated, by names; public so that a caller on the hot path can look there without a call.
        self.generated: dict[tuple[str, ...], Callable[[dict[str, Any]], Any]] = {}
        self._counts: dict[tuple[str, ...], int] = {}

    def seldom(self, names: tuple[str, ...]) -> Callable[[dict[str, Any]], Any]:
        """The function for a map whose names are not in ``generated``: generated now if maps like it came often."""
        if len(self.generated) >= _MOST_KNOWN or len(names) > _MOST_NAMES:
            return self.slow
        count = self._counts.pop(names, 0) + 1
        if count < _OFTEN:
            if len(self._counts) >= _MOST_KNOWN:
                del self._counts[next(iter(self._counts))]
            self._counts[names] = count
            return self.slow
        if not all(
            type(name) is str for name in names
        ):  # others can be equal and still not the same, as 1 and True are
            return self.slow
        convert = self.generated[names] = self.make(names)
        return convert
