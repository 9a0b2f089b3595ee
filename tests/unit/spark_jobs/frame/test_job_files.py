"""Job files: YAML and JSON to properties, what is refused, where messages point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.errors import ConfigInvalid
from spark_jobs.config import job_files as config

_NAME = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
_TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters=","), min_size=1, max_size=20)
_VALUE = st.one_of(_TEXT, st.booleans(), st.integers(), st.lists(_TEXT, min_size=1, max_size=4))
_TREE = st.recursive(_VALUE, lambda inner: st.dictionaries(_NAME, inner, min_size=1, max_size=4), max_leaves=12)


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """An independent flattening: what properties a nested mapping stands for."""
    result: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{name}.")
        else:
            items = value if isinstance(value, list) else [value]
            result[f"{prefix}{name}"] = ",".join(
                str(item).lower() if isinstance(item, bool) else str(item) for item in items
            )
    return result


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(_NAME, _TREE, min_size=1, max_size=5))
def test_yaml_and_json_say_the_same(tree: dict[str, Any]) -> None:
    expected = flat(tree)
    assert config.parse_text(json.dumps(tree), "job.json", as_json=True).properties == expected
    assert config.parse_text(json.dumps(tree, indent=1), "job.yaml").properties == expected
    assert config.parse_text(yaml.safe_dump(tree, allow_unicode=True), "job.yaml").properties == expected


def test_lists_booleans_and_numbers() -> None:
    file = config.parse_text(
        """
name: orders          # a comment
source:
  topics: [a, b]
  max.offsets.per.trigger: 007
  fail.on.data.loss: True
sink.type: "no"
guarantee: ~
errors: {tolerance: no, retry.delay.ms: 1_000}
""",
        "jobs/orders.yaml",
    )
    assert file.properties == {
        "name": "orders",
        "source.topics": "a,b",
        "source.max.offsets.per.trigger": "007",
        "source.fail.on.data.loss": "true",
        "sink.type": "no",
        "errors.tolerance": "no",
        "errors.retry.delay.ms": "1_000",
    }
    assert file.at("source.topics") == "jobs/orders.yaml:4: "
    assert file.at("unknown") == "jobs/orders.yaml: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "job.yaml:3: a is given twice, first on line 1"),
        ("source:\n  topics: a\nsource.topics: b\n", "job.yaml:3: source.topics is given twice, first on line 2"),
        ("a: [x, [y]]\n", "job.yaml:1: a: a list may hold"),
        ("a: [x, 'y,z']\n", "job.yaml:1: a: the item 'y,z' holds a comma"),
        ("a: b: c\n", "job.yaml:1: is not YAML: mapping values are not allowed here"),
        ("- a\n- b\n", "job.yaml:1: must be a mapping"),
        ("a: 1\n---\nb: 1\n", "job.yaml:3: a job file holds one document"),
        ("", "job.yaml: is empty"),
        ("a: &x {b: *x}\n", "job.yaml:1: is nested more than 30 deep"),
        ("base: &b {x: 1}\na: {<<: *b}\n", "job.yaml:2: option names must be plain strings"),
    ],
)
def test_refused_yaml(text: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config.parse_text(text, "job.yaml")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "a": 2}', "job.json: a is given twice"),
        ('{"a": {"b": 1},\n "a.b": 2}', "job.json: a.b is given twice"),
        ('{"a": 1,\n', "job.json:2: is not JSON"),
        ("[1]", "job.json: must be an object"),
        ('{"a": [{"b": 1}]}', "job.json: a: a list may hold"),
    ],
)
def test_refused_json(text: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config.parse_text(text, "job.json", as_json=True)
    assert str(caught.value).startswith(message)


def test_json_lines() -> None:
    text = '{\n "source": {\n  "topics": ["a"],\n  "format": "ums"},\n "sink": {"type": "x"}}'
    file = config.parse_text(text, "j.json", as_json=True)
    assert file.lines["source.topics"] == 3
    assert file.lines["source.format"] == 4


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"nowhere\.yaml: there is no such file"):
        config.read_file("nowhere.yaml")


def test_checking_a_job_imports_no_spark(tmp_path: Path) -> None:
    """The answer to a typing mistake must not wait for a JVM or for pyspark."""
    job = tmp_path / "job.yaml"
    job.write_text(
        "name: x\nkafka.bootstrap.servers: h:1\nsource.topics: a\nsource.format: "
        "nonsense\nsource.valu.encoding: json\nsink.type: nonsense\n"
    )
    code = (
        "import sys\nfrom spark_jobs.cli import main\nprint(main(['validate', sys.argv[1]]), "
        "[name for name in ('pyspark', 'py4j', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(job)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "2 []\n"
    assert f"{job}:5: Unknown configuration source.valu.encoding; did you mean source.value.encoding?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "nowhere.yaml"], "nowhere.yaml: there is no such file"),
        (["snapshot", "."], "there is no table there"),
        (["zipper", "nowhere"], "nowhere: there is no table there"),
        (["compact", "."], "there is no table there"),
    ],
)
def test_a_command_without_its_file_says_so_once_and_starts_no_spark(
    arguments: list[str], reason: str, tmp_path: Path
) -> None:
    code = "import sys\nfrom spark_jobs.cli import main\nsys.exit(main(sys.argv[1:]))"
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    environment.pop("HADOOP_CONF_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr.count(reason)) == (2, 1), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
