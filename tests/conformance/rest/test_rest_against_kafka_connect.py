"""The REST API over a long story, asked of Kafka Connect itself and of Millrace workers on a real Kafka.

``golden.json`` holds what Kafka Connect answered; in the slow suite the first test asks it again, so that the file
need not be trusted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .differences import DIFFERENCES, differs, page
from .record import GOLDEN, story
from .scenario import FORWARDED, STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

COMPATIBILITY = Path(__file__).parents[3] / "docs" / "connect-compatibility.md"
NAMES = [step.name for step in (*STEPS, *FORWARDED)]


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    """Kafka Connect's recorded answers."""
    answers: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return answers


@pytest.mark.slow
def test_kafka_connect_still_answers_so(
    java_connect: Callable[..., Any], golden: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    answers = story(java_connect, tmp_path_factory.mktemp("rest"))
    wrong = [name for name in NAMES if answers[name] != golden[name]]
    assert not wrong, "\n".join(f"{name}: recorded {golden[name]}, now {answers[name]}" for name in wrong)


def test_millrace_answers_like_kafka_connect(
    millrace: Callable[..., Any], golden: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    answers = story(millrace, tmp_path_factory.mktemp("rest"))
    complaints = {name: differs(name, golden[name], answers[name]) for name in NAMES}
    wrong = [
        f"{name} {complaint}:\n  Kafka Connect {json.dumps(golden[name])}\n  Millrace      {json.dumps(answers[name])}"
        for name, complaint in complaints.items()
        if complaint is not None
    ]
    assert not wrong, f"{len(wrong)} of {len(NAMES)} answers differ:\n" + "\n".join(wrong)


def test_the_scenario_and_the_tables_fit_together(golden: dict[str, Any]) -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert set(golden) == set(NAMES)
    assert set(DIFFERENCES) <= set(NAMES)
    assert all(f"`{name}`" in page() for name in DIFFERENCES)


def test_the_compatibility_page_has_the_table() -> None:
    assert page() in COMPATIBILITY.read_text(encoding="utf-8"), (
        "put what `python -m tests.conformance.rest.differences` prints into docs/connect-compatibility.md"
    )
