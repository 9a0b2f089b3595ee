"""The commands `up`, `down` and `status` for Millrace's command line."""

import argparse
import json
import time

from compose.local.commands.catalog import OFFERS
from compose.local.commands.stack import ProcessHealth, Stack
from compose.local.commands.state import StackEntry, encode_entry
from worker.fetch.errors import StackError
from worker.terminal import say

_SERVICES = "\n".join(f"  {offer.name:14}{offer.summary}" for offer in OFFERS.values())
_FOLDERS_HELP = (
    "Downloads go to MILLRACE_CACHE (default ~/.cache/millrace), state, data and logs to MILLRACE_HOME\n"
    "(default ~/.local/state/millrace). All services listen on 127.0.0.1 only. A service\n"
    "keeps its ports when it is stopped and started again; down --remove-data forgets them."
)


def add_commands(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the three commands; each sets `run`, a function from the parsed arguments to the exit code."""
    up = _add_command(subparsers, "up", "start services of the local stack in the background", "kafka")
    up.add_argument(
        "--brokers", type=_parse_brokers, metavar="N", help="number of Kafka brokers (default: as before, else 1)"
    )
    up.set_defaults(run=run_up)

    down = _add_command(subparsers, "down", "stop services that 'up' started", "all")
    down.add_argument("--remove-data", action="store_true", help="remove their data and logs too")
    down.set_defaults(run=run_down)

    status = _add_command(subparsers, "status", "show what runs, where, and its log", "all")
    status.add_argument("--json", action="store_true", help="print JSON, for scripts")
    status.set_defaults(run=run_status)


def run_up(options: argparse.Namespace) -> int:
    """Start services; exit code 0 when all are ready, else 1 with the reason on standard error."""
    try:
        stack = Stack()
        stack.up(options.services or ["kafka"], options.brokers)
        for name, address in stack.addresses().items():
            print(f"{name}\t{address}")
    except StackError as error:
        say(str(error))
        return 1
    return 0


def run_down(options: argparse.Namespace) -> int:
    """Stop services; exit code 0 also when nothing ran."""
    try:
        stopped = Stack().down(options.services, remove_data=options.remove_data)
    except StackError as error:
        say(str(error))
        return 1
    say(f"stopped {len(stopped)} process(es)" if stopped else "nothing to stop")
    return 0


def run_status(options: argparse.Namespace) -> int:
    """Show services; exit code 0 when all that are recorded and all that were named run, else 1."""
    try:
        rows = Stack().status(options.services)
    except StackError as error:
        say(str(error))
        return 1
    if options.json:
        print(json.dumps([{**encode_entry(entry), "state": str(state)} for entry, state in rows], indent=2))
    elif rows:
        print(_format_table(rows))
    else:
        print("nothing was started; start something with: millrace up")
    running = {entry.service for entry, _ in rows}
    well = all(state is ProcessHealth.RUNNING for _, state in rows) and running.issuperset(options.services)
    return 0 if well else 1


def _add_command(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str, default: str
) -> argparse.ArgumentParser:
    command = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"services:\n{_SERVICES}\n\n{_FOLDERS_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # No `choices`: argparse would refuse the empty list.
    command.add_argument(
        "services", nargs="*", type=_parse_service, metavar="SERVICE", help=f"services (default: {default}), see below"
    )
    return command


def _parse_service(name: str) -> str:
    if name not in OFFERS:
        raise argparse.ArgumentTypeError(f"there is no service '{name}'; there are: {', '.join(OFFERS)}")
    return name


def _parse_brokers(argument: str) -> int:
    count = int(argument) if argument.isdecimal() else 0
    if not 1 <= count <= 9:
        raise argparse.ArgumentTypeError(f"'{argument}' is not a number of brokers from 1 to 9")
    return count


def _format_table(rows: list[tuple[StackEntry, ProcessHealth]]) -> str:
    header = ("SERVICE", "PART", "STATE", "PID", "ADDRESS", "STARTED", "LOG")
    lines = [
        (
            entry.service, entry.part, str(state), str(entry.pid) if state is not ProcessHealth.ENDED else "-", entry.address,
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.started)), entry.log,
        )
        for entry, state in rows
    ]  # fmt: skip
    folders = [
        f"{entry.service} {entry.part}: {name} in {path}" for entry, _ in rows for name, path in entry.folders.items()
    ]
    widths = [max(len(line[at]) for line in (header, *lines)) for at in range(len(header))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in (header, *lines)]  # fmt: skip
    return "\n".join([*table, *folders])
