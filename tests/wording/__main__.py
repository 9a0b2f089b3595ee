"""``python -m tests.wording [FILE ...]``: check names and prose of the checkout, or of some files."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.wording.findings import Finding, check_markdown, check_python
from tests.wording.glossary import Glossary, read_glossary
from tests.wording.waivers import REWRITE, excess, format_waivers, growths, parse_waivers, slack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("worker", "connectors", "offsets", "spark_jobs", "compose", "tests", "docs")
GLOSSARY = "docs/glossary.md"
WAIVERS = "tests/wording/waivers.txt"
#: The glossary names the banned words; the reference is generated from strings that are checked in the code.
_UNCHECKED = (GLOSSARY, "docs/reference/")
_SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "node_modules"}
_FILES_PER_PROCESS = 40


def checked_files(root: Path) -> list[str]:
    """Return the paths of all files that are checked, relative to the checkout."""
    found_files = [
        *root.glob("*.md"),
        *(path for folder in FOLDERS for pattern in ("*.py", "*.md") for path in (root / folder).rglob(pattern)),
    ]
    return sorted(name for path in found_files if is_checked(name := path.relative_to(root).as_posix()))


def is_checked(name: str) -> bool:
    """Say whether the file of this path in the checkout is checked."""
    parts = name.split("/")
    inside = len(parts) == 1 or parts[0] in FOLDERS
    suffix = name.endswith(".md") or (name.endswith(".py") and len(parts) > 1)
    return (
        inside
        and suffix
        and not name.startswith(_UNCHECKED)
        and not any(part in _SKIPPED_FOLDERS or part.startswith(".") for part in parts)
    )


def check_file(root: Path, glossary: Glossary, name: str) -> list[Finding]:
    """Return the findings of one file."""
    text = (root / name).read_text(encoding="utf-8")
    if name.endswith(".md"):
        return check_markdown(name, text, glossary)
    return check_python(name, text, glossary, messages=not name.startswith("tests/"))


def check_files(root: Path, names: Sequence[str]) -> list[Finding]:
    """Return the findings of several files, checked by several processes where they are many."""
    glossary = read_glossary((root / GLOSSARY).read_text(encoding="utf-8"))
    check = partial(check_file, root, glossary)
    if len(names) <= _FILES_PER_PROCESS:
        results: Iterable[list[Finding]] = map(check, names)
        return [finding for findings in results for finding in findings]
    with ProcessPoolExecutor() as pool:
        return [finding for findings in pool.map(check, names, chunksize=_FILES_PER_PROCESS) for finding in findings]


def count_by_path(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the number of findings per file."""
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.path] = counts.get(finding.path, 0) + 1
    return counts


def report(root: Path, names: Sequence[str], *, whole_tree: bool) -> int:
    """Print the findings of files that have more than their waivers allow; returns the exit code.

    Of the whole tree, waivers that are larger than need be are errors too.
    """
    findings = check_files(root, names)
    waivers = parse_waivers((root / WAIVERS).read_text(encoding="utf-8"))
    counts = count_by_path(findings)
    over = excess(counts, waivers)
    for finding in findings:
        if finding.path in over:
            print(finding)
    for path, number in over.items():
        print(
            f"{path}: {counts[path]} findings, {waivers.get(path, 0)} are waived: fix {number}, of those above any "
            f"({GLOSSARY} has the words; after a rename or a split: {REWRITE})"
        )
    loose = slack(
        dict.fromkeys(names, 0) | counts,
        waivers if whole_tree else {name: waivers[name] for name in names if name in waivers},
    )
    if loose:
        print(
            f"{sum(loose.values())} findings fewer than {WAIVERS} allows, in {', '.join(list(loose)[:5])}"
            f"{' ...' if len(loose) > 5 else ''}: run {REWRITE} and commit the file"
        )
    return 1 if over or loose else 0


def rewrite_waivers(root: Path, *, may_grow: bool) -> int:
    """Write the counts of today; returns 1 and writes nothing where one would grow and may not."""
    path = root / WAIVERS
    counts = count_by_path(check_files(root, checked_files(root)))
    waivers = parse_waivers(path.read_text(encoding="utf-8")) if path.is_file() else {}
    grown = growths(counts, waivers)
    if grown and not may_grow:
        for growth in grown:
            print(f"{growth.path}: {growth.count} findings, {growth.waived} are waived")
        print(f"{WAIVERS} was not written: fix what came in addition, or accept it with {REWRITE} --raise")
        return 1
    path.write_text(format_waivers(counts), encoding="utf-8")
    print(
        f"{WAIVERS}: {sum(counts.values())} findings in {len(counts)} files; "
        f"before: {sum(waivers.values())} in {len(waivers)}"
    )
    return 0


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="millrace lint", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--waive", action="store_true", help=f"write the counts of today into {WAIVERS}")
    parser.add_argument("--raise", action="store_true", dest="may_grow", help="with --waive: accept larger counts")
    options = parser.parse_args(argv)
    if options.waive:
        return rewrite_waivers(root, may_grow=options.may_grow)
    if not options.files:
        return report(root, checked_files(root), whole_tree=True)
    names = [path.resolve().relative_to(root).as_posix() for path in options.files]
    return report(root, [name for name in names if is_checked(name)], whole_tree=False)


if __name__ == "__main__":
    sys.exit(main())
