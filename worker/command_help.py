"""The help of ``./millrace``: commands in groups, and the nearest one for a mistyped word."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Every command, in the order in which a user meets them.
GROUPS: Final = (
    ("Try it on this machine", ("demo", "up", "sql", "status", "down")),
    ("Run", ("worker", "job", "console")),
    ("Look things up", ("options", "plugins", "completion")),
    ("Check data and configurations", ("doctor", "verify", "migrate-check")),
    ("Set up logins", ("hash-password", "hash-token")),
    ("Work on Millrace", ("test", "simulate", "soak", "fuzz", "lint", "format", "docs", "site", "bench", "licenses")),
)


def list_commands(summaries: Mapping[str, str]) -> str:
    """The help of ``./millrace``: commands in groups, each with its summary, and what to call next.

    Args:
        summaries: What each command does, by its name.
    """
    width = max(map(len, summaries))
    lines = [
        "Millrace captures every change of MySQL, MariaDB, Cassandra and Scylla tables, and logs, for Kafka.",
        "",
    ]
    lines += ["usage: millrace COMMAND ...", ""]
    for title, names in GROUPS:
        lines += [title, *(f"  {name:{width}}  {summaries[name]}" for name in names), ""]
    lines += ["millrace COMMAND --help shows a command's options. Start with millrace demo."]
    return "\n".join(lines)


def reject_command(name: str, commands: Iterable[str]) -> str:
    """The error for the unknown command ``name``, with the commands that look like it, if any do."""
    near = difflib.get_close_matches(name, list(commands), n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "millrace without arguments lists the commands"
    return f"there is no command {name!r}; {hint}"
