"""The command ``millrace fuzz``: run targets, and print how many inputs were run and what they found."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.engine import fuzz
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the targets; returns 1 if there is a finding."""
    parser = argparse.ArgumentParser(prog="millrace fuzz", description=__doc__)
    parser.add_argument(
        "--target", action="append", choices=sorted(TARGETS), help="one of them; several times for several"
    )
    parser.add_argument("--seconds", type=float, default=10, help="how long each runs")
    parser.add_argument("--seed", type=int, default=None, help="of the inputs; without it another one for each run")
    parser.add_argument("--save", type=Path, default=None, help="folder for the inputs of findings")
    options = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    seed = options.seed if options.seed is not None else time.time_ns()
    inputs = findings = 0
    for name in options.target or TARGETS:
        # The parser of .proto files prints every error.
        with contextlib.redirect_stderr(io.StringIO()):
            report = fuzz(TARGETS[name], seed=seed, seconds=options.seconds)
        inputs += report.inputs
        findings += len(report.findings)
        print(
            f"{name}: {report.inputs:,} inputs, {report.kept:,} new places, {len(report.findings)} findings, seed {seed}",
            flush=True,
        )
        for finding in report.findings:
            print(f"  {finding}", flush=True)
            if options.save is not None:
                folder = options.save / name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / hashlib.sha256(finding.data).hexdigest()[:16]).write_bytes(finding.data)
    print(f"{inputs:,} inputs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
