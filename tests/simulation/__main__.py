"""The command ``millrace simulate``: run seeds, and print the shortest schedule of the first one that fails."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Final

from tests.simulation.delivery import run_delivery
from tests.simulation.run import Verdict, run_seed, shorten
from worker.terminal import rewritable, rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    Trace = Sequence[tuple[float, str, str]]

_REPORT_S: Final = 30.0
#: Of this process, while runs have a clock of their own.
_cpu_s: Final = time.process_time


def main(argv: Sequence[str] | None = None) -> int:
    """Run the seeds; returns 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="millrace simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument(
        "--seconds", type=float, default=0, help="start no further seed after that many seconds; 0: no limit"
    )
    parser.add_argument(
        "--all", action="store_true", help="go on after a seed that fails, without its shortest schedule"
    )
    parser.add_argument("--trace", action="store_true", help="print what happened in each run")
    options = parser.parse_args(argv)
    if os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("set PYTHONHASHSEED=0, as ./millrace simulate does: a seed gives another run without it")
    logging.raiseExceptions = False
    gc.collect()
    gc.freeze()
    return run_seeds(range(options.seed, options.seed + options.seeds), options)


def run_seeds(seeds: range, options: argparse.Namespace) -> int:
    """Run seeds one after the other, and report."""
    began = reported = time.monotonic()
    cpu_s = _cpu_s()
    failed: list[int] = []
    ran = acknowledged = steps = records = 0
    virtual_s = longest_s = 0.0
    for seed in seeds:
        rewrite(f"seed {seed}, {ran} of {len(seeds)} done, {time.monotonic() - began:.0f} s")
        delivered = run_delivery(seed)
        if delivered.broken:
            rewrite("")
        records += delivered.records
        if delivered.broken:
            failed.append(seed)
            print(f"seed {seed}, delivery, exactly once: {delivered.exactly_once}: {delivered.broken}", flush=True)
            if options.trace or not options.all:
                print_trace(delivered.trace)
            if not options.all:
                break
        verdict = run_seed(seed)
        ran += 1
        acknowledged += verdict.acknowledged
        steps += verdict.steps
        virtual_s += verdict.virtual_s
        longest_s = max(longest_s, verdict.settled_s)
        if options.trace or verdict.broken:
            rewrite("")
        if options.trace:
            print_trace(verdict.trace)
        if verdict.broken:
            failed.append(seed)
            print(f"seed {seed}: {verdict.broken}", flush=True)
            if not options.all:
                print_shortest(verdict)
                break
        now = time.monotonic()
        if options.seconds and now - began > options.seconds:
            break
        if now - reported > _REPORT_S and not rewritable():
            reported = now
            print(f"{ran} seeds in {now - began:.0f} s, {len(failed)} failed", flush=True)
    took = time.monotonic() - began
    rewrite("")
    print(
        f"{ran} seeds from {seeds.start} on in {took:.1f} s ({_cpu_s() - cpu_s:.1f} s of CPU): {len(failed)} failed; "
        f"{steps} steps, {virtual_s / 3600:.2f} hours of virtual time, {acknowledged} requests acknowledged, all runs again "
        f"within {longest_s:.1f} s after the faults; {records} records delivered"
    )
    return 1 if failed else 0


def print_trace(trace: Trace) -> None:
    """Print what happened in a run."""
    for at, process, text in trace:
        print(f"{at - 1000:10.3f} {process:24} {text}")


def print_shortest(verdict: Verdict) -> None:
    """Print the shortest plan that fails."""
    print("looking for the shortest schedule that fails ...", flush=True)
    shortest = shorten(verdict.plan)
    print_trace(shortest.trace)
    plan = shortest.plan
    print(f"\nseed {plan.seed}, {plan.workers} workers, exactly once: {plan.exactly_once}; {shortest.broken}")
    for event in plan.events:
        print(f"  {event}")
    print(f"\nreproduce the whole run with ./millrace simulate --seed {plan.seed} --seeds 1 --trace")


if __name__ == "__main__":
    sys.exit(main())
