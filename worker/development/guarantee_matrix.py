"""The page of guarantees: what each source with each sink promises, as far as a test shows it.

A test that kills processes and compares every row carries ``pytest.mark.proves(end, level, killed=[...])``. The end is ``from``
and a connector or a source of jobs, or ``into`` and a sink, with a word for a part of it: ``from mysql snapshot``. The page is
made from these marks, so it holds nothing without a test. The marks are read from the tests' source: nothing is imported.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

NONE: Final = "at-most-once"
#: The weakest first.
LEVELS: Final = (NONE, "at-least-once", "exactly-once")
SIDES: Final = ("from", "into")
PROVES: Final = "proves"
#: What a test may kill.
VICTIMS: Final = ("worker", "task host", "driver", "Python worker", "server", "Kafka", "sender")
#: Pairs that promise less than each of them does alone: (source, sink) -> level and reason.
LIMITS: Final = {
    **{
        (source, "kafka"): ("at-least-once", "the sink keeps its position as an offset of the topic that is read")
        for source in ("files", "history")
    },
    **{
        (source, "materializer"): (NONE, "a materializer is tested with topics only") for source in ("files", "history")
    },
}


_INTRO: Final = (
    "Each cell holds the weaker guarantee of the source (with `exactly.once.source.support=enabled` in the workers) and of the "
    "sink, with the tests that show it. A test counts only if it kills processes and compares every row; some are slow tests "
    "(`./millrace test slow`). A source or a sink without such a test promises at most once here. What the guarantees rest on: "
    "[guarantees](../guarantees.md).\n"
)


@dataclass(frozen=True, slots=True)
class Proof:
    """A test that shows a guarantee.

    Attributes:
        side: ``from`` or ``into``.
        label: the source or the sink, with the part of it: ``mysql snapshot``.
        level: one of ``LEVELS``.
        test: its path below the checkout and its name.
        killed: what it kills, of ``VICTIMS``.
    """

    side: str
    label: str
    level: str
    test: str
    killed: tuple[str, ...]

    @property
    def name(self) -> str:
        """The connector, the source or the sink, without the part."""
        return name_of(self.label)


def name_of(label: str) -> str:
    """The connector, the source or the sink of a label, without the part of it."""
    return label.partition(" ")[0]


def find_proofs(root: Path) -> list[Proof]:
    """The marks of all tests below ``root/tests``, in the order of files and lines.

    Raises:
        ConfigInvalid: a mark has other arguments than two strings and a list.
    """
    proofs: list[Proof] = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        source_code = path.read_text(encoding="utf-8")
        if f"mark.{PROVES}(" in source_code:
            where = str(path.relative_to(root))
            proofs += (proof for function in _find_functions(source_code) for proof in _find_proofs(function, where))
    return proofs


def _find_functions(source_code: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source_code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _find_proofs(function: ast.FunctionDef | ast.AsyncFunctionDef, where: str) -> Iterator[Proof]:
    for decorator in function.decorator_list:
        if not (
            isinstance(decorator, ast.Call)
            and isinstance(decorator.func, ast.Attribute)
            and decorator.func.attr == PROVES
        ):
            continue
        test = f"{where}::{function.name}"
        try:
            end, level = (ast.literal_eval(argument) for argument in decorator.args)
            side, label = end.split(" ", 1)
            (killed,) = (ast.literal_eval(keyword.value) for keyword in decorator.keywords if keyword.arg == "killed")
        except ValueError as error:
            raise ConfigInvalid(
                f"{test}: {PROVES} takes an end, a level and killed=[...], each as plain text"
            ) from error
        if side not in SIDES or level not in LEVELS or not killed or not set(killed) <= set(VICTIMS):
            raise ConfigInvalid(
                f"{test}: {PROVES} takes {' or '.join(SIDES)} and a name, a level ({', '.join(LEVELS)}) and what is killed "
                f"({', '.join(VICTIMS)})"
            )
        yield Proof(side, label, level, test, tuple(killed))


@dataclass(frozen=True, slots=True)
class MatrixEnd:
    """A row or a column of the matrix.

    Attributes:
        label: such as ``mysql snapshot``.
        level: the strongest that a test shows.
        numbers: of the tests that show it.
    """

    label: str
    level: str
    numbers: tuple[str, ...]


def build_ends(names: Sequence[str], proofs: Sequence[Proof], letter: str) -> tuple[list[MatrixEnd], dict[str, Proof]]:
    """The ends of one side, and their proofs by number (``S1``); an end without a proof promises nothing. Pure."""
    numbered = {f"{letter}{number}": proof for number, proof in enumerate(proofs, 1)}
    rows: list[MatrixEnd] = []
    for name in names:
        labels = dict.fromkeys(proof.label for proof in proofs if proof.name == name) or {name: None}
        for label in labels:
            proven = {number: proof for number, proof in numbered.items() if proof.label == label}
            level = max((proof.level for proof in proven.values()), key=LEVELS.index, default=NONE)
            rows.append(
                MatrixEnd(label, level, tuple(number for number, proof in proven.items() if proof.level == level))
            )
    return rows, numbered


def format_cell(source: MatrixEnd, sink: MatrixEnd) -> str:
    """The guarantee of a pair, which is that of its weaker end, and the tests that show it. Pure."""
    level = min(source.level, sink.level, key=LEVELS.index)
    limit = LIMITS.get((name_of(source.label), name_of(sink.label)))
    if limit is not None:
        level = min(level, limit[0], key=LEVELS.index)
    level_name = level.replace("-", " ")
    return level_name if level == NONE else f"{level_name} ({', '.join((*source.numbers, *sink.numbers))})"


def check_offers(proofs: Sequence[Proof], offers: Mapping[str, Sequence[str]]) -> None:
    """Refuse a mark that says more than its end offers, or whose end is not there.

    Args:
        proofs: of one side.
        offers: the guarantees of each source, or of each sink, by name.

    Raises:
        ConfigInvalid: with the test's name.
    """
    for proof in proofs:
        if proof.name not in offers:
            raise ConfigInvalid(f"{proof.test}: there is no {proof.name}; there are {', '.join(sorted(offers))}")
        if proof.level not in offers[proof.name]:
            raise ConfigInvalid(f"{proof.test}: {proof.name} offers {', '.join(offers[proof.name])}, not {proof.level}")


def render_page(proofs: Sequence[Proof], sources: Sequence[str], sinks: Mapping[str, Sequence[str]], note: str) -> str:
    """The page.

    Args:
        proofs: of all tests.
        sources: names of connectors and of sources of jobs.
        sinks: the guarantees that each sink offers, by name.
        note: which command makes the page.

    Raises:
        ConfigInvalid: a mark does not fit.
    """
    reads = [proof for proof in proofs if proof.side == "from"]
    writes = [proof for proof in proofs if proof.side == "into"]
    check_offers(reads, dict.fromkeys(sources, LEVELS))
    check_offers(writes, sinks)
    rows, shown_sources = build_ends(sources, reads, "S")
    columns, shown_sinks = build_ends(list(sinks), writes, "K")
    open_sinks = [
        f"- `{column.label}` offers {sinks[name_of(column.label)][0].replace('-', ' ')}; no test shows more than "
        f"{column.level.replace('-', ' ')}."
        for column in columns
        if sinks[name_of(column.label)][0] not in {column.level, "none"}
    ]
    parts = [
        f"# Guarantees of each source with each sink\n{note}",
        _INTRO,
        "|  | " + " | ".join(f"`{column.label}`" for column in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        "| can't be read again | " + " | ".join(NONE.replace("-", " ") for _ in columns) + " |",
        *(f"| `{row.label}` | " + " | ".join(format_cell(row, column) for column in columns) + " |" for row in rows),
        "",
        *(f"- `{source}` into `{sink}`: {reason}." for (source, sink), (_, reason) in LIMITS.items()),
        *open_sinks,
        "\n## The tests\n\n| number | of | shows | kills | test |\n|---|---|---|---|---|",
        *(
            f"| {number} | {proof.side} `{proof.label}` | {proof.level.replace('-', ' ')} | {', '.join(proof.killed)} "
            f"| `{proof.test}` |"
            for number, proof in {**shown_sources, **shown_sinks}.items()
        ),
        "",
    ]
    return "\n".join(parts)


def guarantee_page(root: Path, note: str) -> str:
    """The page of the checkout ``root``. Reads its tests; imports the sinks.

    Raises:
        ConfigInvalid: a mark does not fit.
    """
    from connectors.job_api import JobConnector
    from spark_jobs import registry as jobs
    from worker.plugins import PluginRegistry

    connectors = PluginRegistry("").builtin_connectors()
    sources = [name for name, connector in sorted(connectors.items()) if not issubclass(connector, JobConnector)]
    sinks = {
        name: jobs.load_class(where).guarantees for name, where in sorted(jobs.list_entry_points(jobs.SINKS).items())
    }
    return render_page(
        find_proofs(root),
        [*sources, *jobs.INPUT_SOURCES],
        {"materializer": jobs.load_class(jobs.MATERIALIZER).guarantees, **sinks},
        note,
    )
