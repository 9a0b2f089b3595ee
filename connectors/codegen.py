"""Builds Python functions from source that is written for one schema or table: the one place that compiles generated code.

A generator adds lines to a ``CodeBuilder``, binds the values that the lines refer to, and takes the functions out. Values from
outside never stand in the source as they are: they are bound to a name, or quoted by ``repr``.

Tracebacks show the generated lines. With the environment variable ``MILLRACE_DUMP_CODE=FOLDER`` every source is also written to
a file of that folder.
"""

from __future__ import annotations

import os
import re
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import CodeType, TracebackType

#: Environment variable with the folder into which generated source is written.
DUMP_FOLDER: Final = "MILLRACE_DUMP_CODE"
_NO_FILE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_TITLE: Final = 80


class CodeBuilder:
    """Source that grows line by line, and the values that its names stand for.

    Attributes:
        lines: the source.
        names: its globals; after ``compile`` also what the source defines.
    """

    __slots__ = ("_count", "_notes", "lines", "names")

    def __init__(self, **names: Any) -> None:
        """Begin with no lines.

        Args:
            names: globals of the source.
        """
        self.lines: list[str] = []
        self.names: dict[str, Any] = names
        self._notes: dict[int, str] = {}
        self._count = 0

    def new_name(self, stem: str) -> str:
        """A name that is not used yet: ``stem``, an underscore and a number."""
        self._count += 1
        return f"{stem}_{self._count}"

    def bind(self, stem: str, value: object) -> str:
        """A new global name for ``value``."""
        name = self.new_name(stem)
        self.names[name] = value
        return name

    def add(self, depth: int, line: str, note: str = "") -> None:
        """Add a line, ``depth`` levels deep; the note is for ``find_note``."""
        self.lines.append("    " * depth + line)
        if note:
            self._notes[len(self.lines)] = note

    def define(self, signature: str, body: Iterable[str]) -> None:
        """Add the function ``signature`` (name and parameters) with the lines of its body."""
        self.lines.append(f"def {signature}:")
        self.lines += indent_lines(body)

    def compile(self, title: str) -> dict[str, Any]:
        """Run the source; its globals, with the functions that it defines.

        Args:
            title: says in tracebacks and file names what was generated.

        Raises:
            SyntaxError: the generator has a defect.
        """
        source = "\n".join(self.lines)
        name = (
            f"{_NO_FILE_NAME.sub('_', title)[:_LONGEST_TITLE]}-{zlib.crc32(source.encode('utf-8', 'replace')):08x}.py"
        )
        folder = os.environ.get(DUMP_FOLDER)
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_text(source + "\n", encoding="utf-8", errors="replace")
        # linecache, which tracebacks read lines from, asks the loader of a module whose file does not exist.
        self.names.update(__name__=title, __loader__=_Loader(source))
        exec(_compile_source(source, f"generated/{name}"), self.names)  # noqa: S102 - the rule on values is in the docstring above
        return self.names

    def find_note(self, trace: TracebackType | None) -> str:
        """The note of the line at which the compiled source raised; empty if the line has no note."""
        note = ""
        while trace is not None:
            if trace.tb_frame.f_globals is self.names:
                note = self._notes.get(trace.tb_lineno, "")
            trace = trace.tb_next
        return note

    def function(self, name: str, title: str) -> Callable[..., Any]:
        """Run the source; the function ``name`` that it defines. As ``compile``."""
        function: Callable[..., Any] = self.compile(title)[name]
        return function


@lru_cache(maxsize=64)
def _compile_source(source: str, file_name: str) -> CodeType:
    """Compiled source: tasks that read tables of the same form share it, compiling takes milliseconds."""
    return compile(source, file_name, "exec")


class _Loader(NamedTuple):
    """The part of a module's loader that linecache needs."""

    source: str

    def get_source(self, _name: str) -> str:
        """The source of the module."""
        return self.source


def indent_lines(lines: Iterable[str], depth: int = 1) -> list[str]:
    """The lines, ``depth`` levels deeper."""
    margin = "    " * depth
    return [margin + line for line in lines]


def dict_display(members: Iterable[tuple[str, str]]) -> str:
    """The source of a dict with these keys and expressions."""
    return "{" + ", ".join(f"{key!r}: {expression}" for key, expression in members) + "}"


def unpack_names(stem: str, count: int) -> str:
    """The source of a tuple of the names ``stem`` 0, 1 ...: to unpack into, or to build one."""
    return "(" + "".join(f"{stem}{index}, " for index in range(count)) + ")"
