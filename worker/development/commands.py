"""Commands for people who work on Millrace or run its checks: tests, lint, benchmarks, reference pages, plugin lists."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from connectors.errors import ConfigInvalid, MillraceError
from worker import terminal as console

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.plugins.environments import Scan
    from worker.plugins.model import PluginInfo

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("worker", "connectors", "offsets", "spark_jobs", "compose", "tests")
#: What is run in one session, in order: folders of ``tests``. What a group names, folders of another leave out. The first is
#: the longest; what must not be disturbed comes last in it, when the others have ended.
SUITES = (
    ("integration", "chaos"),
    (
        "unit",
        "simulation",
        *(
            f"integration/{name}"
            for name in (
                "connectors",
                "console",
                "converters",
                "host",
                "metrics",
                "offsets",
                "packaging",
                "plugins",
                "security",
                "stack",
            )
        ),
    ),
    (
        "conformance",
        *(
            f"integration/{name}"
            for name in (
                "cassandra",
                "control",
                "mysql",
                "scylla",
                "secrets",
                "spark_jobs/clickhouse",
                "spark_jobs/files",
                "spark_jobs/hbase",
                "spark_jobs/http",
                "spark_jobs/mongodb",
                "spark_jobs/opensearch",
                "spark_jobs/redis",
            )
        ),
    ),
)
#: Unit tests, in sessions that take about the same time.
UNIT = (("unit/connectors", "unit/transforms"), ("unit/connectors/scylla", "unit/spark_jobs"), ("unit",))
#: Slow tests of all kinds, in two sessions: both wait for servers most of the time.
SLOW = (("integration",), ("chaos", "conformance", "unit"))
#: Unit tests that need neither Spark nor a server: what ``millrace test light`` runs, in an environment without Spark.
LIGHT = (
    ("unit/connectors",),
    tuple(
        f"unit/{name}"
        for name in (
            "control",
            "converters",
            "fuzz",
            "host",
            "metrics",
            "offsets",
            "plugins",
            "rest",
            "secrets",
            "transforms",
            "validation",
            "test_bench_gate.py",
            "test_command_help.py",
            "test_command_output.py",
            "test_guarantee_matrix.py",
            "test_imports.py",
            "test_licenses.py",
            "test_schedule.py",
            "test_script_types.py",
            "test_selection.py",
            "test_verify_forms.py",
            "test_verify_process.py",
            "test_verify_targets.py",
            "test_wording.py",
        )
    ),
)


#: What pytest returns when tests failed, and when it has selected none.
_TESTS_FAILED = 1
_NO_TESTS = 5
#: How many failures of a session are printed again when all sessions have ended.
_REPORTED = 50
#: With more failures than this none is run once more: it is not the machine.
_MOST_UNSTABLE = 8
_UNEXPECTED_SKIP = "unexpected skip: "


def _require_checkout(purpose: str) -> Path:
    if not (ROOT / "tests").is_dir():
        raise MillraceError(
            f"{purpose} needs a checkout of Millrace: {ROOT} has no tests folder; clone the repository and call "
            "./millrace there"
        )
    return ROOT


def run_tests(suite: str, pytest_args: list[str]) -> int:
    """Run one suite, or all of them; returns pytest's exit code, of several sessions the first that is not 0.

    All suites are three sessions next to each other, since tests wait for servers half of the time; so are unit tests.
    Lines of several sessions come as they are written, each after its session's number. A few tests that fail there are run
    once more, alone: those that pass then are named as unstable and fail nothing.
    """
    root = _require_checkout("millrace test")
    args = pytest_args[1:] if pytest_args[:1] == ["--"] else pytest_args
    # A path among the arguments replaces the suites' folders, so that one file can be run.
    named = any((root / item.split("::")[0]).exists() for item in args)
    suites = {"all": SUITES, "unit": UNIT, "light": LIGHT, "slow": SLOW}
    groups: tuple[tuple[str, ...], ...] = ((),) if named else suites.get(suite, ((suite,),))
    if suite == "slow":
        args = ["--slow", "--timeout=3600", "-m", "slow or scaled", *args]
    if os.environ.get("CI"):
        args = ["--strict-skips", "--durations=40", "--durations-min=8", *args]
    commands = [
        [
            sys.executable,
            "-u",
            "-m",
            "pytest",
            *(f"tests/{name}" for name in group if (root / "tests" / name).exists()),
            *(f"--ignore=tests/{name}" for name in find_elsewhere(group, groups)),
            *args,
        ]
        for group in groups
    ]
    # Compiled modules are kept, next to what is installed: hundreds of processes of a run import the same ones.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "pycache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if len(commands) == 1:
        return subprocess.run(commands[0], cwd=root, env=environment, check=False).returncode
    with tempfile.TemporaryDirectory(prefix="millrace-tests-") as folder, ThreadPoolExecutor(len(commands)) as pool:
        failed_names = Path(folder) / "failed"
        environment["MILLRACE_FAILED_TESTS"] = str(failed_names)
        sessions = [
            pool.submit(_run_session, number, command, root, environment) for number, command in enumerate(commands, 1)
        ]
        results = [session.result() for session in sessions]
        failed_tests = read_failed_tests(failed_names, results)
    del environment["MILLRACE_FAILED_TESTS"]
    # Sessions end at different times: without this, thousands of lines of the last one follow the failures of the others.
    for number, (code, reports) in enumerate(results, 1):
        print(f"session {number} ended with exit code {code}", *reports, sep="\n")
    if not failed_tests:
        return exit_code([code for code, _ in results])
    print(f"once more, without other sessions: {', '.join(failed_tests)}", flush=True)
    command = [sys.executable, "-u", "-m", "pytest", *failed_tests, *args]
    code = subprocess.run(command, cwd=root, env=environment, check=False).returncode
    if code == 0:
        print(f"UNSTABLE: failed next to another session, passed alone: {', '.join(failed_tests)}")
    return code


def read_failed_tests(file: Path, results: Sequence[tuple[int, Sequence[str]]]) -> list[str]:
    """The tests that failed, to be run once more; none if anything else is wrong, or if they are too many for chance.

    Args:
        file: their names, as ``tests/failures.py`` writes them.
        results: of each session the exit code, and the lines of its summary. A session that broke off has no summary: what it
            has not run must not pass for run.
    """
    for code, reports in results:
        if code not in {0, _TESTS_FAILED, _NO_TESTS} or (code == _TESTS_FAILED and not reports):
            return []
        if any(_UNEXPECTED_SKIP in line for line in reports):
            return []
    if not file.exists():
        return []
    names = dict.fromkeys(name for name in file.read_text(encoding="utf-8").splitlines() if name.startswith("tests/"))
    return list(names) if len(names) <= _MOST_UNSTABLE else []


def _run_session(number: int, command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run one of several sessions to its end and print its lines, each after ``number``.

    Returns its exit code and the lines of its summary that name what failed, at most ``_REPORTED`` of them.
    """
    reports: deque[str] = deque(maxlen=_REPORTED)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            # One call, so that lines of other sessions don't get into this one.
            sys.stdout.write(f"{number}| {line.rstrip()}\n")
            sys.stdout.flush()
            if line.startswith(("FAILED tests/", "ERROR tests/", _UNEXPECTED_SKIP)):
                reports.append(f"{number}| {line.rstrip()}")
        return process.wait(), list(reports)


def exit_code(codes: list[int]) -> int:
    """One exit code for several sessions: the first failure. A session that selects no test fails only if none has any."""
    ran = [code for code in codes if code != _NO_TESTS]
    return next((code for code in ran if code), 0) if ran else _NO_TESTS


def find_elsewhere(group: tuple[str, ...], groups: tuple[tuple[str, ...], ...]) -> list[str]:
    """The folders inside those of ``group`` that other groups name."""
    return [
        name
        for other_group in groups
        if other_group is not group
        for name in other_group
        if any(name.startswith(f"{folder}/") for folder in group)
    ]


def run_lint(files: list[str]) -> int:
    """Check names and prose, format, ruff's rules and types (mypy, strict); returns the first failing exit code.

    Args:
        files: Check these only, without types; relative to the working directory.
    """
    root = _require_checkout("millrace lint")
    paths = [str(Path(name).resolve()) for name in files]
    packages = [name for name in PACKAGES if (root / name).is_dir()]
    python = [name for name in paths if name.endswith(".py")] if files else packages
    commands = [["tests.wording", *paths]]
    if python:
        commands.append(["ruff", "check", *python])
    if not files:
        commands.append(["mypy", *packages])
    if not files or any(name.endswith(".js") for name in paths):
        commands.append(["tests.script_types"])
    for command in commands:
        code = _run_tool(command, root)
        if code:
            return code
    return format_code(files, check=True)


def _run_tool(command: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> int:
    """Run a module to its end with its progress shown, then print what it said; returns its exit code."""
    colours = {"FORCE_COLOR": "1", "MYPY_FORCE_COLOR": "1"} if sys.stdout.isatty() and console.has_colours() else {}
    with console.progress(f"running {command[0]}", quiet_s=2):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=folder,
            env={**os.environ, **colours, **(variables or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    return done.returncode


def format_code(files: list[str], *, check: bool = False) -> int:
    """Format Python with ruff and Markdown with mdformat; returns the first failing exit code.

    Args:
        files: Format these only, relative to the working directory; none: the whole checkout.
        check: Change nothing; the exit code is 1 if a file would change.
    """
    root = _require_checkout("millrace format")
    paths = [Path(name).resolve() for name in files] or [root / name for name in PACKAGES if (root / name).is_dir()]
    generated = root / "docs" / "reference"
    folders = [*paths, root / "docs"]
    pages = paths if files else [*root.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    markdown = [page for page in pages if page.suffix == ".md" and generated not in page.parents]
    python = [path for path in paths if path.suffix in {".py", ""}]
    option = ["--check"] if check else []
    commands = [
        [*command, *option, *map(str, targets)]
        for command, targets in ((["ruff", "format"], python), (["mdformat"], markdown))
        if targets
    ]
    for command in commands:
        code = _run_tool(command, root)
        if code:
            print("./millrace format brings files into form" if check else f"{command[0]} failed", file=sys.stderr)
            return code
    return 0


def run_bench(name: str | None, args: list[str]) -> int:
    """Run ``tests/bench/NAME.py``'s ``main(argv)``, or list the benchmarks."""
    root = _require_checkout("millrace bench")
    folder = root / "tests" / "bench"
    scripts = {path.stem.replace("_", "-"): path for path in sorted(folder.glob("[a-z]*.py"))}
    if name is None:
        for label, path in scripts.items():
            first = path.read_text(encoding="utf-8").split('"""')[1].strip().splitlines()[0]
            print(f"{label:24} {first}")
        return 0
    if name.replace("_", "-") not in scripts:
        raise ConfigInvalid(f"there is no benchmark {name!r}; there are: {', '.join(scripts)}")
    sys.path.insert(0, str(root))
    module = importlib.import_module(f"tests.bench.{name.replace('-', '_')}")
    return int(module.main(args) or 0)


def simulate_cluster(args: list[str]) -> NoReturn:
    """Run seeds of the simulated cluster; the exit code is 1 if one of them breaks a rule."""
    # A seed gives the same run in every process only if sets of strings have the same order in all of them.
    _become_module("tests.simulation", args, _require_checkout("millrace simulate"), {"PYTHONHASHSEED": "0"})


def fuzz_parsers(args: list[str]) -> NoReturn:
    """Run fuzzing targets; the exit code is 1 if one of them has a finding."""
    _become_module("tests.fuzz", args, _require_checkout("millrace fuzz"), {})


def _become_module(module: str, args: list[str], folder: Path, variables: Mapping[str, str]) -> NoReturn:
    """Run a module in place of this process: a signal that ends the command leaves no child behind."""
    sys.stdout.flush()
    os.chdir(folder)
    command = [sys.executable, "-m", module, *args]
    os.execve(sys.executable, command, {**os.environ, **variables})  # noqa: S606 - a program of this environment


def check_licenses(sbom: str | None) -> int:
    """Print the licence of every installed dependency; returns 1 if one is not allowed.

    Args:
        sbom: File for the bill of materials of what runs in production; None: it is not written.
    """
    from worker.development.licenses import RUNTIME_EXTRAS, bill_of_materials, installed_components, refused_licenses

    components = installed_components("millrace", (*RUNTIME_EXTRAS, "light", "test"))
    for component in components:
        print(f"{component.name:40} {component.version:20} {component.license or '-'}")
    if sbom is not None:
        text = bill_of_materials(installed_components("millrace", RUNTIME_EXTRAS))
        try:
            Path(sbom).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigInvalid(f"--sbom {sbom}: {error.strerror}") from error
    refused = refused_licenses(components)
    for line in refused:
        print(f"not allowed by worker/development/licenses.py: {line}", file=sys.stderr)
    return 1 if refused else 0


def write_docs(*, check: bool) -> int:
    """Write ``docs/reference`` and the picture of the pipeline, or with ``check`` only tell which files are stale."""
    from worker.development.guarantee_matrix import guarantee_page
    from worker.development.picture import draw_pipeline
    from worker.development.reference import NOTE, reference_pages

    docs = _require_checkout("millrace docs") / "docs"
    with console.progress("reading the declarations and the marks of tests", quiet_s=2):
        pages_by_path = {f"reference/{name}": content for name, content in reference_pages().items()}
        pages_by_path["reference/guarantees.md"] = guarantee_page(ROOT, NOTE)
    pages_by_path["images/pipeline.svg"] = draw_pipeline((docs / "images" / "pipeline.yml").read_text(encoding="utf-8"))
    stale = [
        name
        for name, content in pages_by_path.items()
        if not (docs / name).is_file() or (docs / name).read_text(encoding="utf-8") != content
    ]
    extra = [
        name
        for path in sorted((docs / "reference").rglob("*.md"))
        if (name := path.relative_to(docs).as_posix()) not in pages_by_path
    ]
    if check:
        for name in (*stale, *extra):
            print(f"stale: docs/{name}; call ./millrace docs and commit the result", file=sys.stderr)
        return 1 if stale or extra else 0
    for name in stale:
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(pages_by_path[name], encoding="utf-8")
    for name in extra:
        (docs / name).unlink()
    print(f"docs: {len(pages_by_path)} files, {len(stale)} written, {len(extra)} removed")
    return 0


def build_site(*, serve: bool) -> int:
    """Build the documentation site into ``build/site``, or serve it until interrupted; returns MkDocs' exit code.

    A link that leads nowhere and a page that is in no menu are errors.
    """
    root = _require_checkout("millrace site")
    # Its notice about a next major version is not for readers of a build log.
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    if serve:
        command = [sys.executable, "-m", "mkdocs", "serve", "--strict"]
        return subprocess.run(command, cwd=root, env={**os.environ, **quiet}, check=False).returncode
    return _run_tool(["mkdocs", "build", "--strict"], root, quiet)


def print_plugins(plugin_path: str, kind: str | None) -> int:
    """Print the plugins found, with the environment of each; exit code 1 if one of them can't be used."""
    from worker.plugins.model import list_plugins

    plugins, environments_scan, failures = _all_plugins(plugin_path)
    rows = [
        (row["type"], row["class"], row["version"], "main" if key == "" else environments_scan.environments[key].name)
        for key in ("", *environments_scan.environments)
        for row in list_plugins([plugin for plugin in plugins if plugin.environment == key], connectors_only=False)
        if kind is None or row["type"] == kind
    ]
    for row in sorted(rows):
        print(f"{row[0]:16} {row[1]:72} {row[2]:10} {row[3]}".rstrip())
    for name, error in failures.items():
        print(f"failed to load {name}: {error}", file=sys.stderr)
    return 1 if failures else 0


def _all_plugins(plugin_path: str) -> tuple[list[PluginInfo], Scan, dict[str, str]]:
    """All plugins, Millrace's own first, the environments they are in, and what can't be used."""
    from worker.plugins.describe import describe_all
    from worker.plugins.environments import scan_folders
    from worker.plugins.isolation import own_distributions
    from worker.plugins.registry import PluginRegistry

    registry = PluginRegistry(plugin_path)
    environments_scan = scan_folders(
        [item.strip() for item in plugin_path.split(",") if item.strip()], own_distributions()
    )
    described = asyncio.run(describe_all(environments_scan.environments.values()))
    failures = {**registry.failures, **environments_scan.failures}
    for key, description in described.items():
        failures |= {
            f"{environments_scan.environments[key].name}: {value}": reason
            for value, reason in description.failures.items()
        }
    return (
        [*registry.infos(), *(plugin for description_of in described.values() for plugin in description_of.plugins)],
        environments_scan,
        failures,
    )


def _labels(plugin: PluginInfo) -> Sequence[str]:
    """The names of a plugin that are easy to type."""
    return [short for short in plugin.shorts if short.islower()] or [plugin.class_name]


def print_connector_options(name: str) -> int:
    """Print a connector's own options and what each does; of several versions the latest."""
    from worker.plugins.catalog import PluginCatalog
    from worker.plugins.isolation import activate_folders
    from worker.plugins.model import CONNECTORS
    from worker.plugins.registry import PluginRegistry

    plugin_path = os.environ.get("MILLRACE_PLUGIN_PATH", "")
    plugins, environments_scan, _ = _all_plugins(plugin_path)
    chosen = PluginCatalog(plugins).connector({"connector.class": name})
    if chosen is None:
        names = sorted({short for plugin in plugins if plugin.kind in CONNECTORS for short in _labels(plugin)})
        raise ConfigInvalid(f"there is no connector '{name}'; there are: {', '.join(names)}")
    folders = [environments_scan.environments[chosen.environment].path] if chosen.environment else []
    activate_folders(folders)
    definition = PluginRegistry(plugin_path, folders).connector(name).config_def
    for key in definition.keys.values():
        default = "required" if key.required else f"default {key.default}"
        print(f"{key.name}  ({key.type.lower()}{', ' + key.unit if key.unit else ''}; {default})\n    {key.doc}\n")
    return 0
