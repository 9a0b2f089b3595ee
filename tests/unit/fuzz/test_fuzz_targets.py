"""Every fuzzing target, for about a second, with the same inputs each time; and the fuzzer itself."""

from __future__ import annotations

import contextlib
import io
import logging
from typing import TYPE_CHECKING

import pytest

from connectors.errors import Skippable
from tests.fuzz import engine
from tests.fuzz.engine import CORPUS, Target, check_input, fuzz
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The parser of .proto files prints every error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stderr(io.StringIO()):
        yield
    logging.disable(before)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_has_no_finding(name: str) -> None:
    report = fuzz(TARGETS[name], seed=23, inputs=TARGETS[name].quick)
    assert not report.findings, "\n".join(map(str, report.findings))
    assert report.inputs >= TARGETS[name].quick


@pytest.mark.parametrize(
    ("name", "case"), [(path.parent.name, path.name) for path in sorted(CORPUS.glob("*/*"))], ids=lambda value: value
)
def test_inputs_that_once_led_to_a_finding(name: str, case: str) -> None:
    """Each is refused by an exception that the parser declares, or read."""
    assert check_input(TARGETS[name], (CORPUS / name / case).read_bytes()) is None


def _target(run: object, **options: object) -> Target:
    return Target("own", run, lambda: [b"abc"], **options)  # type: ignore[arg-type]


def test_exceptions_that_are_not_declared_are_found_once_for_each_place() -> None:
    def run(data: bytes) -> int:
        if len(data) > 5:
            raise Skippable("declared by all")
        if len(data) > 3:
            raise ValueError("declared by this target")
        return [1, 2][len(data)]

    report = fuzz(_target(run, declared=(ValueError,)), seed=1, inputs=200)
    assert [finding.reason for finding in report.findings] == ["IndexError: list index out of range"]
    assert report.inputs == 200


def test_hangs_and_growth_of_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LONGEST_S", 0.05)
    monkeypatch.setattr(engine, "MOST_BYTES", 1 << 20)

    def loop(_data: bytes) -> None:
        while True:
            with contextlib.suppress(Exception):
                bytes(10)

    finding = check_input(_target(loop), b"x")
    assert finding is not None
    assert finding.reason.startswith("it takes more than")
    monkeypatch.setattr(engine, "LONGEST_S", 5.0)
    peak = engine._memory()
    finding = check_input(_target(lambda _data: len(b"x" * (peak + (64 << 20)))), b"x")
    assert finding is not None
    assert finding.reason.startswith("memory grows")


def test_the_same_seed_gives_the_same_inputs() -> None:
    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []
        fuzz(_target(seen.append), seed=seed, inputs=50)
        return seen

    assert inputs(5) == inputs(5) != inputs(6)
