"""The configurations on the pages are valid: each is given to the validation that it would meet if someone copied it.

A configuration of a connector is a JSON object with ``connector.class``, as ``PUT /connectors/NAME/config`` takes it, and a
block of YAML on a page of jobs is a job file. What has neither a class nor a name is a fragment, and completes the first
whole configuration of its page, or a minimal one. A block whose first line is a comment with a path shows that file, which
other blocks of the page may name. Two things are abbreviations and not checked: a configuration with ``...``, and a file of
users, whose names have no dots.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from spark_jobs.config.job_files import check_flow, parse_text
from worker.config.validation.answers import validate_config
from worker.config.worker_config import parse_worker
from worker.config.worker_keys import WORKER_CONFIG
from worker.development.commands import ROOT
from worker.plugins import PluginRegistry
from worker.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HERE_DOCUMENT: Final = re.compile(r"^cat > \S+\.properties <<'?EOF'?\n(.*?)^EOF$", re.DOTALL | re.MULTILINE)
_FILE: Final = re.compile(r"# (/?(?:[\w.-]+/)+[\w.-]+)\n")
_REFERENCE: Final = re.compile(r"\$\{\w+:[^}]*\}")
#: What a variable of the shell stands for: a folder that exists.
_FOLDER: Final = "FOLDER"
_SHELL_VARIABLE: Final = re.compile(r"\$[A-Za-z]+")
#: An address of loopback at which no server listens, in place of those of the examples.
_NO_SERVER: Final = "127.9.9.9"
_HOST: Final = re.compile(r"\b(?:\d+\.\d+\.\d+\.\d+|[\w-]+\.example\.com)\b")
_UNREACHABLE: Final = ("The server can't be asked: ", "The cluster can't be asked: ")
_JSON: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}
WORKER: Final = {
    "bootstrap.servers": f"{_NO_SERVER}:9092",
    "group.id": "millrace",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "status",
    **_JSON,
}
CONNECTOR: Final = {
    "connector.class": "mysql",
    "topic.prefix": "shop",
    "database.hostname": _NO_SERVER,
    "database.user": "millrace",
    "database.password": "a-password",
}
JOB: Final = {
    "name": "orders",
    "kafka.bootstrap.servers": f"{_NO_SERVER}:9092",
    "source.topics": "shop.orders",
    "source.format": "debezium",
    "sink.type": "console",
}
MATERIALIZER: Final = {
    **JOB,
    "source.format": "partition-update",
    "transform.type": "materialize",
    "sink.type": "kafka",
    "sink.kafka.topic": "orders.rows",
}


class Example(NamedTuple):
    """A configuration on a page, completed.

    Attributes:
        page: The page.
        line: Of the page, where its block starts.
        options: The configuration.
    """

    page: Path
    line: int
    options: dict[str, str]

    @property
    def label(self) -> str:
        """Where it is."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _read_blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """The line, the language and the content of each block of a page."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        yield text.count("\n", 0, block.start()) + 1, block[1], block[2]


def _read_objects(block: str) -> Iterator[dict[str, Any]]:
    """The JSON objects with a class of a connector in a block, also where a shell's double quotes are around them."""
    if '\\"connector.class\\"' in block:
        block = _SHELL_VARIABLE.sub(_FOLDER, block.replace('\\"', '"'))
    for start in re.finditer(r"\{", block):
        try:
            shown, _ = json.JSONDecoder().raw_decode(block, start.start())
        except ValueError:
            continue
        if "connector.class" in shown:
            yield shown


def _is_of_jobs(page: Path) -> bool:
    return page.parent.name == "jobs"


def _is_of_worker(options: Mapping[str, str]) -> bool:
    """Whether properties are a worker's: converters, too, have options that a connector can have."""
    return any(name in WORKER_CONFIG.keys and ".converter" not in name for name in options)


def _read_properties(page: Path) -> Iterator[tuple[int, dict[str, str]]]:
    for line, language, block in _read_blocks(page):
        for content in [block] if language == "properties" else _HERE_DOCUMENT.findall(block):
            options = parse_properties(content)
            if any("." in name for name in options):
                yield line, options


def _find_connectors() -> Iterator[Example]:
    for page in PAGES:
        first: Mapping[str, str] = CONNECTOR
        for line, _, block in _read_blocks(page):
            for shown in _read_objects(block):
                options = {name: str(value) for name, value in shown.items()}
                if any("..." in item for item in options.items()):
                    continue
                first = options if first is CONNECTOR else first
                yield Example(page, line, options)
        if not _is_of_jobs(page):
            for line, options in _read_properties(page):
                if not _is_of_worker(options):
                    yield Example(page, line, {**first, **options})


def _find_worker_properties() -> Iterator[Example]:
    for page in PAGES:
        for line, options in _read_properties(page):
            if _is_of_worker(options):
                yield Example(page, line, {**WORKER, **options})


def _read_job(language: str, block: str) -> dict[str, str]:
    """The options of a job file or of a fragment of one; a list alone is one of steps."""
    if language == "properties":
        return parse_properties(block)
    if block.startswith("- "):
        block = "transform:\n  steps:\n" + "".join(f"  {line}\n" for line in block.splitlines())
    return parse_text(block).properties


def _complete_job(options: Mapping[str, str], first: Mapping[str, str] | None) -> dict[str, str]:
    """A job with the options of a fragment: its sink, its steps and its topics are there in place of other ones."""
    names = {name.partition(".")[0] for name in options}
    base = first or (MATERIALIZER if "materializer" in names else JOB)
    replaced = [f"{part}." for part in ("sink", "transform") if part in names]
    replaced += ["source.topics"] if "source.topics.pattern" in options else []
    return {name: value for name, value in base.items() if not name.startswith(tuple(replaced))} | dict(options)


def _find_jobs() -> Iterator[Example]:
    for page in [ROOT / "docs" / "masking.md", *(page for page in PAGES if _is_of_jobs(page))]:
        first: Mapping[str, str] | None = None
        for line, language, block in _read_blocks(page):
            if language != "yaml" and not (language == "properties" and _is_of_jobs(page)):
                continue
            options = _read_job(language, block)
            whole = "name" in options
            first = options if whole and first is None else first
            yield Example(page, line, options if whole else _complete_job(options, first))


CONNECTORS: Final = list(_find_connectors())
WORKERS: Final = list(_find_worker_properties())
JOBS: Final = list(_find_jobs())


def _prepare(example: Example, folder: Path) -> dict[str, str]:
    """The options of an example where its references have values, its files exist and its servers do not."""
    files = {}
    for number, (_, _, block) in enumerate(_read_blocks(example.page)):
        shown_file = _FILE.match(block)
        if shown_file is not None:
            path = folder / shown_file[1] if shown_file[1][0] != "/" else folder / str(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block, encoding="utf-8")
            files[shown_file[1]] = str(path)
    return {
        name: files.get(value)
        or _HOST.sub(_NO_SERVER, _REFERENCE.sub("a-password", value.replace(_FOLDER, str(folder))))
        for name, value in example.options.items()
    }


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry("")


def test_examples_are_found() -> None:
    assert len(CONNECTORS) > 30
    assert len(WORKERS) > 7
    assert len(JOBS) > 35


@pytest.mark.parametrize("example", CONNECTORS, ids=lambda example: example.label)
async def test_configurations_of_connectors_are_valid(
    registry: PluginRegistry, example: Example, tmp_path: Path
) -> None:
    config = {"name": "example"} | _prepare(example, tmp_path)
    answer = await validate_config(registry, config, None, _JSON | WORKER, resolved=config, deadline_s=20)
    values = {item["value"]["name"]: item["value"] for item in answer["configs"]}
    complaints = [message for value in values.values() for message in value["errors"]]
    assert [message for message in complaints if not message.startswith(_UNREACHABLE)] == []
    # Options of jobs and of masks that are not known are among the complaints.
    if registry.connector_plugin(config["connector.class"], None).kind == "source":
        assert sorted(name for name in set(config) - set(values) if not name.startswith("mask.")) == []


@pytest.mark.parametrize("example", WORKERS, ids=lambda example: example.label)
def test_properties_of_workers_are_valid(example: Example, tmp_path: Path) -> None:
    _, warnings = parse_worker(_prepare(example, tmp_path))
    assert warnings == []


@pytest.mark.parametrize("example", JOBS, ids=lambda example: example.label)
def test_job_files_are_valid(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    jobs, problems = check_flow(_prepare(example, tmp_path))
    assert [problem.message for problem in problems] == []
    assert jobs
