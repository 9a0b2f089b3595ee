"""Offsets and records in the console: numbers that a browser would round stay as they are written."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from worker.console.assets import STATIC

#: Playwright brings one along; it needs no browser.
NODE = Path(pytest.importorskip("playwright").__file__).parent / "driver" / "node"
BIG = 9007199254740993


def run_module(folder: Path, script: str) -> str:
    """Run a script that knows the module, and return its output."""
    shutil.copy(STATIC / "exact.js", folder / "exact.mjs")
    (folder / "script.mjs").write_text(f'import {{ exact, shownExactly }} from "./exact.mjs";\n{script}', "utf-8")
    done = subprocess.run([NODE, folder / "script.mjs"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.mark.skipif(not NODE.exists(), reason="this build of Playwright has no node")
def test_an_offset_that_is_edited_keeps_the_digits_of_its_other_fields(tmp_path: Path) -> None:
    partition = {"token": -(1 << 63), "of": 'a "quoted" 9007199254740993'}
    answer = json.dumps({"offsets": [{"partition": partition, "offset": {"id": BIG, "ratio": 1.50, "row": 5}}]})
    sent = run_module(
        tmp_path,
        f"""
        const entry = exact.parse({json.dumps(answer)}).offsets[0];
        const shown = exact.stringify(entry.offset, null, 2);
        const offset = exact.parse(shown.replace('"row": 5', '"row": 6'));
        console.log(exact.stringify({{ offsets: [{{ partition: entry.partition, offset }}] }}));
        """,
    )
    assert json.loads(sent) == {"offsets": [{"partition": partition, "offset": {"id": BIG, "ratio": 1.5, "row": 6}}]}


@pytest.mark.skipif(not NODE.exists(), reason="this build of Playwright has no node")
def test_what_is_no_json_stays_none(tmp_path: Path) -> None:
    said = run_module(
        tmp_path,
        """
        for (const text of ["{", "01", "9007199254740993x", "1.50.2", "{'a': 9007199254740993}", "-"]) {
          try {
            console.log(exact.stringify(exact.parse(text)));
          } catch (problem) {
            console.log(problem.name);
          }
        }
        """,
    )
    assert said.split() == ["SyntaxError"] * 6


@pytest.mark.skipif(not NODE.exists(), reason="this build of Playwright has no node")
def test_values_of_records_are_shown_with_all_their_digits(tmp_path: Path) -> None:
    page = json.dumps({"records": [{"key": BIG, "value": {"id": BIG, "a": 1.50}}, {"key": "plain", "value": 7}]})
    shown = run_module(
        tmp_path,
        f"""
        const {{ records }} = exact.parse({json.dumps(page)});
        for (const {{ key, value }} of records) console.log(shownExactly(key), shownExactly(value));
        """,
    )
    assert shown.splitlines() == [f'{BIG} {{"id":{BIG},"a":1.5}}', "plain 7"]
