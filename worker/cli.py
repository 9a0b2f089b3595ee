"""The command line: ``millrace COMMAND ...``. Each command's code is imported only when it is called."""

from __future__ import annotations

import argparse
import errno
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.errors import ConfigInvalid, MillraceError
from worker import __version__
from worker.command_help import list_commands, reject_command
from worker.command_parser import CommandParser, parse_count, parse_port, parse_seconds
from worker.fetch.errors import StackError
from worker.standard_files import discard_output, is_output_closed, open_standard_files

if TYPE_CHECKING:
    from collections.abc import Sequence


def _run_worker(options: argparse.Namespace) -> int:
    from worker.launch import main as run

    argv = [str(options.properties), *map(str, options.connectors)]
    if options.processes is not None:
        argv += ["--processes", str(options.processes)]
    return run(argv)


def _run_plugins(options: argparse.Namespace) -> int:
    from worker.development.commands import print_plugins

    return print_plugins(options.plugin_path, options.kind)


def _run_docs(options: argparse.Namespace) -> int:
    from worker.development.commands import write_docs

    return write_docs(check=options.check)


def _run_test(options: argparse.Namespace) -> int:
    from worker.development.commands import run_tests

    return run_tests(options.suite, options.pytest_args)


def _run_lint(options: argparse.Namespace) -> int:
    from worker.development.commands import run_lint

    return run_lint(options.files)


def _run_format(options: argparse.Namespace) -> int:
    from worker.development.commands import format_code

    return format_code(options.files)


def _run_benchmark(options: argparse.Namespace) -> int:
    from worker.development.commands import run_bench

    return run_bench(options.name, options.args)


def _run_simulation(options: argparse.Namespace) -> int:
    from worker.development.commands import simulate_cluster

    flags = [f"--{name}" for name in ("all", "trace") if getattr(options, name)]
    names = ("seeds", "seed", "seconds", "processes")
    numbers = [f"--{name}={value}" for name in names if (value := getattr(options, name)) is not None]
    return simulate_cluster([*numbers, *flags])


def _fuzz(options: argparse.Namespace) -> int:
    from worker.development.commands import fuzz_parsers

    targets = [item for name in options.target or () for item in ("--target", name)]
    more = [f"--{name}={value}" for name in ("seed", "save") if (value := getattr(options, name)) is not None]
    return fuzz_parsers(["--seconds", str(options.seconds), *targets, *more])


def _licenses(options: argparse.Namespace) -> int:
    from worker.development.commands import check_licenses

    return check_licenses(options.sbom)


def _run_demo(options: argparse.Namespace) -> int:
    from compose.demo import run_demo

    return run_demo(writes=options.writes, once=options.once, verbose=options.verbose)


def _run_soak(options: argparse.Namespace) -> int:
    from compose.soak import run_soak

    return run_soak(options.hours, rate=options.rate, pause_s=options.pause, seed=options.seed, faults=options.faults)


def _run_sql(options: argparse.Namespace) -> int:
    from compose.local.commands.sql import run_sql

    return run_sql(options.service, options.statements)


def _run_site(options: argparse.Namespace) -> int:
    from worker.development.commands import build_site

    return build_site(serve=options.serve)


def _connector_help(options: argparse.Namespace) -> int:
    from worker.development.commands import print_connector_options

    return print_connector_options(options.connector)


def _add_doctor(commands: Any) -> None:
    def run(options: argparse.Namespace) -> int:
        from worker.doctor import run_doctor

        return run_doctor(options)

    doctor = commands.add_parser(
        "doctor",
        help="check this machine, a worker's properties and the servers they name",
        description="Looks at the machine; with a worker's properties also at Kafka and the internal topics; with connectors "
        "also at their sources. Changes nothing. Exit code: 0 no problems, 1 something to fix.",
    )
    doctor.add_argument("properties", nargs="?", type=Path, metavar="WORKER.PROPERTIES")
    doctor.add_argument(
        "connectors", nargs="*", type=Path, default=[], metavar="CONNECTOR", help=".properties or .json"
    )
    doctor.set_defaults(run=run)


def _add_completion(commands: Any, top: argparse.ArgumentParser) -> None:
    def run(options: argparse.Namespace) -> int:
        import shtab

        print(shtab.complete(top, shell=options.shell))
        return 0

    completion = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in a shell",
        description='Prints a script for the shell: eval "$(millrace completion bash)"',
    )
    completion.add_argument("shell", choices=("bash", "zsh"))
    completion.set_defaults(run=run)


def _add_lookups(commands: Any) -> None:
    plugins = commands.add_parser("plugins", help="list the plugins found, and those that can't be used")
    plugins.add_argument(
        "--plugin-path", default="", metavar="DIRS", help="folders with plugins in environments of their own"
    )
    plugins.add_argument(
        "--kind",
        choices=["source", "sink", "converter", "header_converter", "transformation", "predicate"],
        help="only this kind",
    )
    plugins.set_defaults(run=_run_plugins)

    options = commands.add_parser("options", help="print a connector's options")
    options.add_argument("connector", metavar="CONNECTOR", help="name, Python path or Java class name")
    options.set_defaults(run=_connector_help)


def _add_sql(commands: Any) -> None:
    sql = commands.add_parser(
        "sql",
        help="run statements on a database of the local stack",
        description="Runs statements on a database that 'millrace up' started, and prints what they return: a line with the "
        "columns, then a line for each row, with tabs between values.",
    )
    sql.add_argument("service", metavar="SERVICE", help="cassandra, mariadb, postgres or scylla")
    sql.add_argument("statements", nargs="+", metavar="STATEMENT", help="SQL; CQL for cassandra and scylla")
    sql.set_defaults(run=_run_sql)


def _add_site(commands: Any) -> None:
    site = commands.add_parser("site", help="build the documentation site into build/site, or serve it")
    site.add_argument("--serve", action="store_true", help="serve it, and build again what changes")
    site.set_defaults(run=_run_site)


def _add_verify(commands: Any) -> None:
    def run(options: argparse.Namespace) -> int:
        from worker.verify.command import run_verify

        return run_verify(options)

    verify = commands.add_parser(
        "verify",
        help="compare a source's tables with its topics, or a flow's topics with its target",
        description="Compares the tables that a MySQL, MariaDB, Scylla or Cassandra connector captures with its topics, or the "
        "topics of a flow with the tables that its sink has written, row by row (docs/verify.md). Exit code: 0 equal, "
        "1 different, 2 it could not be done.",
    )
    verify.add_argument(
        "--connector-config", metavar="FILE", help="the connector's configuration (.properties or .json)"
    )
    verify.add_argument("--connector", metavar="NAME", help="the connector's name, with --rest")
    verify.add_argument(
        "--rest",
        metavar="URL",
        help="a worker's REST address, to ask for configuration and position. The "
        "environment's MILLRACE_REST_USER and MILLRACE_REST_PASSWORD (or MILLRACE_REST_TOKEN) are sent; "
        "MILLRACE_REST_CA_FILE names the authorities of https, MILLRACE_REST_CERT_FILE an own certificate",
    )
    verify.add_argument("--worker", metavar="FILE", help="the worker's properties: Kafka, converters, config providers")
    verify.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="Kafka, where --worker doesn't say it")
    verify.add_argument(
        "--tables", metavar="REGEX", default="", help="only these of the captured tables (database.table)"
    )
    verify.add_argument(
        "--examples", type=parse_count, default=5, metavar="N", help="keys to show of each kind (default 5)"
    )
    verify.add_argument(
        "--timeout",
        type=parse_seconds,
        default=300.0,
        metavar="SECONDS",
        help="how long the connector may take to reach the place of comparison (default 300)",
    )
    verify.add_argument(
        "--settle",
        type=parse_seconds,
        metavar="SECONDS",
        help="without --rest: how long topics must be quiet; with Scylla and Cassandra also how long a difference must last "
        "(default: 5, with Cassandra 12)",
    )
    verify.add_argument(
        "--repair",
        action="store_true",
        help="with --rest and --connector: ask the connector for a snapshot of the rows that are missing or different",
    )
    verify.add_argument(
        "--rate",
        type=parse_count,
        default=0,
        metavar="ROWS",
        help="rows to read of the source per second at most (default 0: no limit)",
    )
    verify.add_argument("--tmp", metavar="DIR", help="where to put temporary files: about 80 bytes per row and event")
    verify.add_argument("--json", action="store_true", help="print the result as JSON")
    verify.set_defaults(run=run)


def _add_migrate_check(commands: Any) -> None:
    def run(options: argparse.Namespace) -> int:
        from worker.migration import run_migrate_check as check

        return check(options)

    command = commands.add_parser(
        "migrate-check",
        help="tell which connectors of a Kafka Connect cluster can run here",
        description="Reads a cluster's config and offsets topics, validates every connector as this worker would, and changes "
        "nothing. The Java cluster may be running. Exit code: 0 all can run, 1 some can't, "
        "2 it could not be found out.",
    )
    command.add_argument(
        "properties", type=Path, metavar="WORKER.properties", help="the worker properties of that cluster"
    )
    command.add_argument(
        "--timeout",
        type=parse_seconds,
        default=60.0,
        metavar="SECONDS",
        help="for reading a topic, and for each connector's check of its source (default 60)",
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(run=run)


def _add_console(commands: Any) -> None:
    def run(options: argparse.Namespace) -> int:
        from worker.console.java_cluster import run_console

        return run_console(options)

    command = commands.add_parser(
        "console",
        help="show and operate a Java Kafka Connect cluster",
        description="Serves the console on this machine for a cluster of Java workers, by its REST API. Workers of Millrace "
        "serve their own at /console.",
    )
    command.add_argument(
        "--connect",
        metavar="URL",
        required=True,
        help="the REST address of a worker of the cluster, such as http://host:8083. The environment's "
        "MILLRACE_REST_USER and MILLRACE_REST_PASSWORD (or MILLRACE_REST_TOKEN) are sent; MILLRACE_REST_CA_FILE names "
        "the authorities of https, MILLRACE_REST_CERT_FILE an own certificate",
    )
    command.add_argument(
        "--port",
        type=parse_port,
        default=8093,
        metavar="N",
        help="where to listen on 127.0.0.1 (default 8093; 0: any free port)",
    )
    command.set_defaults(run=run)


def _add_simulate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    simulate = commands.add_parser(
        "simulate",
        help="run the cluster under simulation, with faults drawn from seeds",
        description="Runs seeds of the simulated cluster (docs/simulation.md). The first seed that breaks a rule is shortened "
        "and printed, and the exit code is 1.",
    )
    simulate.add_argument("--seeds", type=int, default=100, metavar="N", help="how many seeds (100)")
    simulate.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed (1)")
    simulate.add_argument("--seconds", type=float, default=0, help="start no seed after that many seconds; 0: no limit")
    simulate.add_argument("--processes", type=parse_count, metavar="N", help="side by side (default: one per core)")
    simulate.add_argument("--all", action="store_true", help="run all seeds, also after one that fails")
    simulate.add_argument("--trace", action="store_true", help="print the events of each run")
    simulate.set_defaults(run=_run_simulation)


def _add_soak(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    soak = commands.add_parser(
        "soak",
        help="run the whole pipeline under load with random faults",
        description="Runs the demo's pipeline under a steady load while real processes are killed and frozen (docs/soak.md), "
        "prints a line per minute, and compares every row at the end. If memory or another resource has grown, a process is "
        "left over or a secret has leaked, that is printed, and the exit code is 1.",
    )
    soak.add_argument("--hours", type=float, default=1, metavar="N", help="how long there are faults (1)")
    soak.add_argument("--rate", type=float, default=5, metavar="N", help="writes a second (5)")
    soak.add_argument(
        "--pause", type=float, default=30, metavar="N", help="seconds from a recovery to the next fault (30)"
    )
    soak.add_argument("--seed", type=int, metavar="S", help="the same gives the same faults")
    soak.add_argument("--faults", default="", metavar="TEXT", help="only faults whose names hold it")
    soak.set_defaults(run=_run_soak)


def _add_fuzz(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "fuzz",
        help="run the parsers of foreign bytes on changed inputs",
        description="Runs the targets of tests/fuzz one after the other, and prints how many inputs each was given and which "
        "of them led to an exception that the parser does not declare, a hang or a growth of memory. The exit code is 1 then.",
    )
    command.add_argument("--target", action="append", metavar="NAME", help="one of the targets; again for more (all)")
    command.add_argument("--seconds", type=parse_seconds, default=10, metavar="N", help="how long each runs (10)")
    command.add_argument("--seed", type=int, metavar="S", help="the same gives the same inputs")
    command.add_argument("--save", metavar="FOLDER", help="keep the inputs of findings there")
    command.set_defaults(run=_fuzz)


def _add_licenses(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    licenses = commands.add_parser(
        "licenses",
        help="list the licences of the installed dependencies; refuse those that are not allowed",
        description="Reads the metadata of what is installed. The exit code is 1 if a package has another licence than those "
        "of worker/development/licenses.py.",
    )
    licenses.add_argument(
        "--sbom", metavar="FILE", help="also write the bill of materials of what runs in production (CycloneDX, JSON)"
    )
    licenses.set_defaults(run=_licenses)


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="run the main job on the local stack and show the result",
        description="Starts Kafka, a schema registry, MariaDB, Cassandra, an emulation of Scylla, PostgreSQL and two workers "
        "on this machine; creates source connectors and Spark jobs through REST; runs a shop with a schema change "
        "and a killed worker in its middle; compares every copy with the sources, row by row. Leaves everything "
        "running.",
    )
    demo.add_argument("--writes", type=parse_count, default=600, metavar="N", help="writes to the shop (default 600)")
    demo.add_argument("-v", "--verbose", action="store_true", help="print each call, event and compared row, too")
    demo.add_argument("--once", action="store_true", help="take everything down at the end")
    demo.set_defaults(run=_run_demo)


def _add_worker(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    worker = commands.add_parser(
        "worker",
        help="run a worker",
        description="Runs a worker of a distributed cluster until SIGTERM, which drains it first.",
    )
    worker.add_argument(
        "properties", type=Path, metavar="FILE.properties", help="worker properties, as for Kafka Connect"
    )
    worker.add_argument(
        "connectors",
        type=Path,
        nargs="*",
        default=[],  # else the error about a missing worker file would ask for connectors, too
        metavar="CONNECTOR",
        help="connectors to create or update once the worker is ready (.properties or .json)",
    )
    worker.add_argument(
        "--processes",
        type=parse_count,
        metavar="N",
        help="task hosts to run (default: the machine's cores; 0: all in one process, for a debugger)",
    )
    worker.set_defaults(run=_run_worker)


def _add_test(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    test = commands.add_parser("test", help="run the tests", description="Runs the tests of a checkout with pytest.")
    test.add_argument(
        "suite",
        nargs="?",
        default="all",
        choices=["light", "unit", "integration", "conformance", "chaos", "all", "slow"],
        help="light: the unit tests that need neither Spark nor a server, in a small environment; all: what CI "
        "runs (the default); slow: what takes too long for CI",
    )
    test.add_argument("pytest_args", nargs=argparse.REMAINDER, metavar="...", help="passed to pytest")
    test.set_defaults(run=_run_test)


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser("bench", help="run a benchmark; without a name, list them")
    bench.add_argument("name", nargs="?")
    bench.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="passed to the benchmark")
    bench.set_defaults(run=_run_benchmark)


def _add_docs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    docs = commands.add_parser("docs", help="regenerate docs/reference from the declarations")
    docs.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is stale")
    docs.set_defaults(run=_run_docs)


def _add_lint(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    lint = commands.add_parser(
        "lint",
        help="check the checkout's code and prose: the glossary, ruff, mypy",
        description="Checks names and prose against docs/glossary.md, then runs ruff and mypy over the checkout.",
    )
    lint.add_argument("files", nargs="*", metavar="FILE", help="check these only, without mypy")
    lint.set_defaults(run=_run_lint)


def _add_format(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    formatting = commands.add_parser("format", help="format the checkout: Python with ruff, Markdown with mdformat")
    formatting.add_argument("files", nargs="*", metavar="FILE", help="format these only")
    formatting.set_defaults(run=_run_format)


def build_parser() -> tuple[argparse.ArgumentParser, dict[str, str]]:
    """The parser of all commands, and what each command does, by its name."""
    from compose.local.commands.stack_commands import add_commands
    from worker.rest.commands import add_commands as add_rest_commands

    top: argparse.ArgumentParser = CommandParser(
        prog="millrace", description="Change data capture: a Kafka Connect-compatible cluster of Python workers."
    )
    top.add_argument("--version", action="version", version=f"millrace {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    _add_demo(commands)
    _add_worker(commands)
    add_commands(commands)
    _add_sql(commands)
    add_rest_commands(commands)
    _add_doctor(commands)
    _add_completion(commands, top)
    _add_verify(commands)
    _add_migrate_check(commands)
    _add_console(commands)

    # Its own parser comes with its code, see main.
    commands.add_parser("job", help="run, check, watch and stop Spark jobs", add_help=False).add_argument(
        "arguments", nargs=argparse.REMAINDER
    )

    _add_lookups(commands)

    for add in (
        _add_test,
        _add_bench,
        _add_simulate,
        _add_soak,
        _add_fuzz,
        _add_licenses,
        _add_docs,
        _add_site,
        _add_lint,
        _add_format,
    ):
        add(commands)

    # argparse keeps the summaries of commands only here.
    summaries = {choice.dest: choice.help or "" for choice in commands._choices_actions}  # noqa: SLF001
    return top, summaries


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code: 0 done, 1 failed (the reason is on standard error), 2 wrong arguments, 130 interrupted, 141 when no one
        reads the output any more; ``job`` has further ones.
    """
    open_standard_files()
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        try:
            return _run_arguments(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not is_output_closed():
            raise
        discard_output()
        return 141
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        print(f"millrace: {error}", file=sys.stderr)
        discard_output()
        return 1


def _run_arguments(arguments: list[str]) -> int:
    if arguments[:1] == ["job"]:
        from spark_jobs.cli import main as job

        try:
            return job(arguments[1:])
        except KeyboardInterrupt:
            return 130
    try:
        return _run_command(arguments)
    except (MillraceError, StackError) as error:
        print(f"millrace: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigInvalid) else 1
    except KeyboardInterrupt:
        return 130


def _run_command(arguments: list[str]) -> int:
    top, summaries = build_parser()
    first = arguments[0] if arguments else "--help"
    if first in {"-h", "--help", "help"}:
        print(list_commands(summaries))
        return 0
    if not first.startswith("-") and first not in summaries:
        print(f"millrace: {reject_command(first, summaries)}", file=sys.stderr)
        return 2
    options, extra_arguments = top.parse_known_args(arguments)
    # argparse takes no positional arguments behind an option that follows some: worker FILE --processes 1 CONNECTOR.
    if extra_arguments and hasattr(options, "connectors") and not any(item.startswith("-") for item in extra_arguments):
        options.connectors += map(Path, extra_arguments)
    elif extra_arguments:
        print(f"millrace {first}: it takes no argument {extra_arguments[0]!r}", file=sys.stderr)
        return 2
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
