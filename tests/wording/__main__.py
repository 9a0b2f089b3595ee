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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("worker", "connectors", "offsets", "spark_jobs", "compose", "tests", "docs")
GLOSSARY = "docs/glossary.md"
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


def report(root: Path, names: Sequence[str]) -> int:
    """Print the findings of files; returns the exit code."""
    findings = check_files(root, names)
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} findings; {GLOSSARY} has the words")
    return 1 if findings else 0


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="millrace lint", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    if not options.files:
        return report(root, checked_files(root))
    paths = [path.resolve() for path in options.files]
    for path in paths:
        if not path.is_relative_to(root):
            parser.error(f"{path} is not in the checkout {root}")
        if not path.exists():
            parser.error(f"{path} does not exist")
    names = [path.relative_to(root).as_posix() for path in paths]
    return report(root, [name for name in names if is_checked(name)])


if __name__ == "__main__":
    sys.exit(main())
