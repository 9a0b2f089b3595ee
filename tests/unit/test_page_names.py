"""The pages and the code name the same things: messages, variables, commands, alerts, plugins, calls."""

from __future__ import annotations

import configparser
import contextlib
import re
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from spark_jobs.cli import COMMANDS, make_parser
from worker.cli import build_parser, main
from worker.development.commands import ROOT
from worker.plugins import PluginRegistry
from worker.rest.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODE: Final = ("worker", "connectors", "offsets", "spark_jobs", "compose")
#: Pages that people write; docs/reference is made of the declarations.
PAGES: Final = [
    *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
    *(page for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.relative_to(ROOT).parts),
]
PROSE: Final = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
#: The first column of tables of what goes wrong.
_TROUBLE: Final = {"what you see", "symptom", "when", "error"}
#: Where a page puts a name, a number or a path for what differs from message to message.
_GAP: Final = re.compile(r"\.\.\.|\b[A-Z](?:-[A-Z])?\b|\d+|'[^']*'|<[^>]+>|\S*[./=]\S*")
_NO_MESSAGE: Final = re.compile(r"(?:GET|PUT|POST|DELETE|GRANT|SET|kill|\./|millrace)\b|\S+$")
#: Between two parts of a string.
_BETWEEN_PARTS: Final = re.compile(r"""["']\s*\n\s*f?["']""")
#: A call in backticks, with one method or several, and one of curl.
_CALL: Final = re.compile(r"`((?:(?:GET|PUT|POST|PATCH|DELETE)[, ]+)+)(/[^`\s?]*)")
_CURL: Final = re.compile(r"curl ([^\n]*?)(?:localhost|127\.0\.0\.1):808\d(/[^\s'?\"`]*)")
_BLOCK: Final = re.compile(r"^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: A call of ``millrace``, also one whose output a shell takes.
_COMMAND_LINE: Final = re.compile(r"^ *(?:\w+=\$\()?(?:[\w./-]*/)?millrace ([a-z].*)$", re.MULTILINE)
#: Paths that the connector `logs` serves.
_OF_LOGS: Final = ("/lines", "/_bulk", "/v1/logs", "/services/collector/event")
#: A table that a sink makes.
_NO_METRICS: Final = {"millrace_commits"}
#: Those that tests set.
_NOT_FOR_USERS: Final = {"MILLRACE_FAILED_TESTS", "MILLRACE_MATERIALIZER_KILL"}


def _code() -> str:
    """The code of the product, with the parts of a string in several lines put together."""
    files = (file for package in CODE for file in (ROOT / package).rglob("*.py"))
    return "\n".join(_BETWEEN_PARTS.sub("", file.read_text(encoding="utf-8")) for file in files)


def _quoted_messages(page: Path) -> Iterator[str]:
    """The messages in the first column of a page's tables of what goes wrong."""
    heading = ""
    for line, following in pairwise([*page.read_text(encoding="utf-8").splitlines(), ""]):
        if following.startswith("| --"):
            heading = line.split("|")[1].strip()
        elif not line.startswith("|"):
            heading = ""
        elif heading in _TROUBLE:
            yield from (text for text in re.findall(r"`([^`]+)`", line.split(" | ")[0]) if not _NO_MESSAGE.match(text))


def test_messages_in_tables_of_what_goes_wrong_are_those_of_the_code() -> None:
    """People look for the words of the error that they have."""
    code = _code()
    messages = [(page.name, message) for page in PAGES for message in _quoted_messages(page)]
    assert len(messages) > 40
    parts = [(page, part.strip(" :;,()")) for page, message in messages for part in _GAP.split(message)]
    assert [(page, part) for page, part in parts if " " in part and part not in code] == []


def test_variables_of_the_environment_are_on_a_page() -> None:
    files = [file for package in CODE for file in (ROOT / package).rglob("*.py")]
    files += [ROOT / "millrace", ROOT / "compose" / "entrypoint.sh"]
    variable = re.compile(r"\bMILLRACE_[A-Z_]*[A-Z]\b")
    code = {name for file in files for name in variable.findall(file.read_text(encoding="utf-8"))}
    assert sorted(code - _NOT_FOR_USERS - set(variable.findall(PROSE))) == []
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))
    named = {name for name in variable.findall(PROSE) if not name.startswith("MILLRACE_PROPERTY_")}
    assert sorted(name for name in named - code if name not in tests) == []


def test_every_command_is_on_a_page() -> None:
    _, summaries = build_parser()
    assert [name for name in summaries if f"millrace {name}" not in PROSE] == []


def test_commands_on_the_pages_have_the_options_that_they_name(capsys: pytest.CaptureFixture[str]) -> None:
    _, summaries = build_parser()
    named: dict[tuple[str, ...], set[str]] = {}
    for line in re.findall(r"(?:^|`)(?:\./)?millrace ((?:[^`#|>\n]|\b\|\b)+)", PROSE, re.MULTILINE):
        command, *words = line.split()
        # A benchmark's own options are in the module of the benchmark, pytest's in pytest.
        if command in summaries and command not in ("bench", "test"):
            part = [word for word in words[:1] if word.isalpha()]  # such as `job run`
            named.setdefault((command, *part), set()).update(
                word.strip("[]") for word in words if word.strip("[]").startswith("--")
            )
    unknown = {}
    for command, options in named.items():
        with contextlib.suppress(SystemExit):
            main([*command, "--help"])
        offered = re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out)
        unknown[command] = {name for option in options if (name := option.partition("=")[0]) not in offered}
    assert sum(map(len, named.values())) > 40
    assert {command: options for command, options in unknown.items() if options} == {}


def _read_command_lines() -> Iterator[str]:
    """The lines of blocks on the pages that call ``millrace``, as a shell would hand them on."""
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            yield from _COMMAND_LINE.findall(block.replace("\\\n", " "))


def _split_command(line: str) -> list[str]:
    """The arguments of a command, with its optional ones, and the first where there is a choice."""
    words = shlex.split(line.replace("[", "").replace("]", ""), comments=True)
    end = next((index for index, word in enumerate(words) if word[0] in "|>&"), len(words))
    return [word if " " in word else word.partition("|")[0] for word in words[:end]]


@pytest.mark.parametrize("line", sorted(set(_read_command_lines())))
def test_commands_in_blocks_are_accepted_as_they_are(line: str) -> None:
    arguments = _split_command(line)
    if arguments[0] == "job":
        if arguments[1] not in COMMANDS:  # the parsers of these are in what runs them
            make_parser().parse_args(arguments[1:])
        return
    build_parser()[0].parse_args(arguments)
    assert arguments[0] != "bench" or (ROOT / "tests" / "bench" / f"{arguments[1]}.py").exists()


def test_every_alert_says_what_to_do_first() -> None:
    groups = yaml.safe_load((ROOT / "compose" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `Millrace"))
    assert set(re.findall(r"`(Millrace\w+)`", rows)) == alerts
    assert set(re.findall(r"`(Millrace[A-Z]\w+)`", PROSE)) - alerts == set()


def _entry_points() -> configparser.SectionProxy:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser["options.entry_points"]


def test_metrics_of_connectors_on_the_pages_are_declared() -> None:
    declared = {
        name for kind in PluginRegistry("").builtin_connectors().values() for name in getattr(kind, "metrics", ())
    }
    named = set(re.findall(r"`((?:cassandra|debezium_metrics|logs|mysql|scylla)_\w*[a-zA-Z])[`{]", PROSE))
    assert len(named) > 100
    assert sorted(named - declared) == []


def test_metrics_on_the_pages_are_in_the_reference() -> None:
    reference = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").rglob("*.md"))
    declared = set(re.findall(r"`(millrace_\w+)`", reference))
    named = set(re.findall(r"`(millrace_[a-z0-9_]*[a-z0-9])`", PROSE)) - _NO_METRICS
    assert len(named) > 30
    assert sorted(named - declared) == []


def test_every_group_of_plugins_is_on_the_page_about_plugins() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    groups = [name for name in _entry_points() if name.startswith("millrace.")]
    assert len(groups) > 8
    assert [name for name in groups if f"| `{name}` |" not in page] == []


def test_every_sink_is_on_the_page_of_sinks() -> None:
    page = (ROOT / "docs" / "jobs" / "sinks.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split(" | ")[0] for line in page.splitlines() if line.startswith("| [`"))
    sinks = re.findall(r"^(\w+) *=", _entry_points()["millrace.sinks"], re.MULTILINE)
    assert len(sinks) > 10
    assert sorted(re.findall(r"`(\w+)`", rows)) == sorted(sinks)


def test_calls_that_kafka_connect_lacks_are_on_the_page_about_compatibility() -> None:
    """By the first part of the path that is theirs alone; those of the console are on its page."""
    page = (ROOT / "docs" / "connect-compatibility.md").read_text(encoding="utf-8")
    section = page.partition("Beyond Kafka Connect's API there are:")[2]
    own_paths = {route.path for route in ROUTES["all"] if not route.operation.kafka and route.access != "internal"}
    names = {path.removeprefix("/connectors/{connector}").split("/")[1] for path in own_paths}
    assert len(names) > 10
    # Kafka Connect 3 had it: the table of differences names it.
    assert sorted(name for name in names - {"tasks-config"} if f"/{name}" not in section) == []


def test_calls_on_the_pages_are_served() -> None:
    """``/pause`` alone is that of a connector."""
    routes = [
        (route.method, re.compile(re.sub(r"\\\{[^}]+\\\}", "[^/]+", re.escape(route.path)))) for route in ROUTES["all"]
    ]
    text = PROSE.replace("\\\n", " ")
    calls = [(method, path) for methods, path in _CALL.findall(text) for method in re.findall(r"[A-Z]+", methods)]
    for options, path in _CURL.findall(text):
        method = re.search(r"-X (\w+)", options)
        calls.append((method[1] if method else "GET", path))
    assert len(calls) > 150
    assert [
        (method, path)
        for method, path in calls
        if "..." not in path
        and path not in _OF_LOGS
        and not any(
            method == served and pattern.fullmatch(form)
            for served, pattern in routes
            for form in (path.rstrip("/") or "/", f"/connectors/NAME{path}")
        )
    ] == []


def test_texts_of_options_can_be_read_alone() -> None:
    """REST, the console and ``millrace options`` show an option without the ones next to it in its page."""
    leaning = re.compile(
        r"^(?:See |The same|Its |(?:The l|L)ongest such)|in the same form|of that field|between two of them"
        r"|options (?:above|below)"
    )
    options = [
        (page.name, row[1], row[2])
        for page in sorted((ROOT / "docs" / "reference").rglob("*.md"))
        for row in re.finditer(r"^\| `([^`]+)` \|(?:.* \|)? (.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(options) > 1000
    assert [(page, option) for page, option, text in options if leaning.search(text)] == []
