"""The command ``millrace simulate``: run seeds, and print the shortest schedule of the first one that fails."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from tests.simulation.delivery import Delivered, run_delivery, run_delivery_plan
from tests.simulation.run import Verdict, run_plan, run_seed, shorten
from worker.host.watch import die_with_parent
from worker.terminal import rewritable, rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Trace = Sequence[tuple[float, str, str]]

_REPORT_S: Final = 30.0
#: How many seeds each process has at a time, so that none waits for the others.
_AHEAD: Final = 2
#: Of this process, while runs have a clock of their own.
_cpu_s: Final = time.process_time


@dataclass(frozen=True, slots=True)
class SeedRuns:
    """The two runs of a seed, and what they cost in seconds of CPU."""

    seed: int
    delivered: Delivered
    verdict: Verdict
    cpu_s: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the seeds; returns 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="millrace simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument(
        "--seconds", type=float, default=0, help="start no further seed after that many seconds; 0: no limit"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="how many run side by side; default: one per core"
    )
    parser.add_argument(
        "--all", action="store_true", help="go on after a seed that fails, without its shortest schedule"
    )
    parser.add_argument("--trace", action="store_true", help="print what happened in each run")
    options = parser.parse_args(argv)
    if os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("set PYTHONHASHSEED=0, as ./millrace simulate does: a seed gives another run without it")
    if min(options.processes, options.seeds) < 1:
        parser.error("--processes and --seeds must be 1 or more")
    seeds = range(options.seed, options.seed + options.seeds)
    with ProcessPoolExecutor(options.processes, get_context("fork"), _prepare_process, (os.getpid(),)) as pool:
        return report_runs(run_side_by_side(pool, seeds, options), options)


def _prepare_process(parent: int) -> None:
    """End with the parent, and let the collector look only at what a run leaves behind."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)  # it has ended before
    logging.raiseExceptions = False
    gc.collect()
    gc.freeze()


def run_side_by_side(pool: ProcessPoolExecutor, seeds: range, options: argparse.Namespace) -> Iterator[SeedRuns]:
    """The outcomes of seeds in their order; blocks until the next is there.

    Started seeds end when their consumer stops or the time is over, all others are not started.
    """
    until = time.monotonic() + options.seconds if options.seconds else None
    run = partial(run_both, trace=options.trace)
    waiting = iter(seeds)
    running = deque(pool.submit(run, seed) for seed in islice(waiting, _AHEAD * options.processes))
    while running:
        yield running.popleft().result()
        if until is None or time.monotonic() < until:
            running += [pool.submit(run, seed) for seed in islice(waiting, 1)]


def run_both(seed: int, *, trace: bool) -> SeedRuns:
    """Run a seed; its traces are left out if no rule was broken and ``trace`` is false."""
    began = _cpu_s()
    delivered, verdict = run_delivery(seed), run_seed(seed)
    if not (trace or delivered.broken or verdict.broken):
        delivered, verdict = replace(delivered, trace=()), replace(verdict, trace=())
    return SeedRuns(seed, delivered, verdict, _cpu_s() - began)


def report_runs(outcomes: Iterator[SeedRuns], options: argparse.Namespace) -> int:
    """Print what went wrong and, at the end, what was run; returns 1 if a rule was broken."""
    began = reported = time.monotonic()
    failed: list[int] = []
    ran = acknowledged = steps = records = 0
    virtual_s = longest_s = cpu_s = 0.0
    rewrite(f"the first of {options.seeds} seeds")
    for runs in outcomes:
        delivered, verdict = runs.delivered, runs.verdict
        ran += 1
        records += delivered.records
        acknowledged += verdict.acknowledged
        steps += verdict.steps
        virtual_s += verdict.virtual_s
        longest_s = max(longest_s, verdict.settled_s)
        cpu_s += runs.cpu_s
        if options.trace or delivered.broken or verdict.broken:
            rewrite("")
            print_runs(runs, trace=options.trace, shortest=not options.all)
        if delivered.broken or verdict.broken:
            failed.append(runs.seed)
            if not options.all:
                break
        now = time.monotonic()
        rewrite(f"seed {runs.seed}, {ran} of {options.seeds} done, {now - began:.0f} s")
        if now - reported > _REPORT_S and not rewritable():
            reported = now
            print(f"{ran} seeds in {now - began:.0f} s, {len(failed)} failed", flush=True)
    took = time.monotonic() - began
    rewrite("")
    print(
        f"{ran} seeds from {options.seed} on in {took:.1f} s ({cpu_s:.1f} s of CPU): {len(failed)} failed; "
        f"{steps} steps, {virtual_s / 3600:.2f} hours of virtual time, {acknowledged} requests acknowledged, all runs again "
        f"within {longest_s:.1f} s after the faults; {records} records delivered"
    )
    return 1 if failed else 0


def print_runs(runs: SeedRuns, *, trace: bool, shortest: bool) -> None:
    """Print what happened in the runs of a seed, and which rule was broken, with what is wanted of how."""
    for part, outcome in (("delivery", runs.delivered), ("cluster", runs.verdict)):
        if trace:
            print_trace(outcome.trace)
        if outcome.broken:
            print(f"seed {runs.seed}, {part}: {outcome.broken}", flush=True)
    if shortest and (runs.delivered.broken or runs.verdict.broken):
        print("looking for the shortest schedule that fails ...", flush=True)
    if shortest and runs.delivered.broken:
        print_shortest(shorten(runs.delivered, run_delivery_plan))
    if shortest and runs.verdict.broken:
        print_shortest(shorten(runs.verdict, run_plan))


def print_trace(trace: Trace) -> None:
    """Print what happened in a run."""
    for at, process, text in trace:
        print(f"{at - 1000:10.3f} {process:24} {text}")


def print_shortest(shortest: Delivered | Verdict) -> None:
    """Print the shortest plan that fails."""
    print_trace(shortest.trace)
    plan = shortest.plan
    print(f"\n{replace(plan, events=())}; {shortest.broken}")
    for event in plan.events:
        print(f"  {event}")
    print(f"\nreproduce the whole run with ./millrace simulate --seed {plan.seed} --seeds 1 --trace")


if __name__ == "__main__":
    sys.exit(main())
