"""The parser of every command: it names an unknown option, and an output that can't be written is an error."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_NEGATIVE_NUMBER: Final = re.compile(r"-\.?\d")
#: What follows the first positional argument is for another parser.
_FOREIGN: Final = (argparse.PARSER, argparse.REMAINDER)


class CommandParser(argparse.ArgumentParser):
    """A parser that complains of an unknown option before it complains of missing arguments."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments as ``argparse`` does; ends the process at an unknown option."""
        arguments = sys.argv[1:] if args is None else list(args)
        options = self._option_string_actions
        leads_on = any(action.nargs in _FOREIGN for action in self._actions)
        unknown = find_unknown_option(arguments, options, leads_on=leads_on)
        if unknown is not None:
            near = difflib.get_close_matches(unknown, options, n=1, cutoff=0.75)
            self.error(f"there is no option {unknown}{f'; did you mean {near[0]}?' if near else ''}")
        parsed: tuple[argparse.Namespace, list[str]] = super().parse_known_args(arguments, namespace)
        return parsed

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and file is sys.stdout:
            file.write(message)  # argparse itself says nothing where this fails
        else:
            super()._print_message(message, file)


def find_unknown_option(arguments: Iterable[str], options: Collection[str], *, leads_on: bool) -> str | None:
    """The first option among ``arguments`` that is not one of ``options``, nor the beginning of one.

    Args:
        arguments: Of the command line.
        options: That there are.
        leads_on: Whether what follows the first positional argument is for another parser.
    """
    for argument in arguments:
        if argument == "--":
            return None
        # argparse, too, takes what holds a blank for a value.
        if not argument.startswith("-") or argument == "-" or " " in argument or _NEGATIVE_NUMBER.match(argument):
            if leads_on:
                return None
            continue
        name = argument.partition("=")[0]
        offered = any(option.startswith(name) for option in options) if name[:2] == "--" else argument[:2] in options
        if not offered:
            return name
    return None


def parse_count(value: str) -> int:
    """A number from 0 on."""
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"'{value}' is not a number from 0 on")
    return int(value)


def parse_port(value: str) -> int:
    """The number of a port."""
    if not value.isdecimal() or int(value) > 65535:
        raise argparse.ArgumentTypeError(f"'{value}' is not a port: a number from 0 to 65535")
    return int(value)


def parse_seconds(value: str) -> float:
    """A number of seconds above 0."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"'{value}' is not a number of seconds above 0")
    return seconds
