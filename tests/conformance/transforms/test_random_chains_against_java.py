"""Random chains of transforms over random records, next to Kafka's own classes: seeded, and asked of Java at each run.

The slow suite takes more of them. Where there is no Java the recorded vectors remain (``test_transforms_against_java.py``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.transforms.generate_vectors import run_java
from tests.conformance.transforms.outcomes import outcome
from tests.conformance.transforms.strategies import KINDS, case, collect
from tests.conformance.transforms.test_transforms_against_java import agrees
from tests.conformance.transforms.test_transforms_through_workers import DIFFERENCES
from tests.selection import scaled
from worker.fetch.errors import StackError
from worker.transforms.pipeline import build_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

pytestmark = pytest.mark.scaled
#: Configurations for each transform that a chain begins with, and records of each.
COUNT, RECORDS, SEED = scaled((4, 3, 70_000), (60, 8, 71_000))


def differences(config: Json, records: list[Json], expected: list[Json | None]) -> Iterator[str]:
    pipeline = build_pipeline(config)
    for record, java in zip(records, expected, strict=True):
        ours = outcome(pipeline, record)
        if ours and java and "error" in ours and "error" in java:
            continue  # the recorded vectors compare the words
        if agrees(ours, java) or any(difference.covers(config, record) for difference in DIFFERENCES.values()):
            continue
        yield json.dumps({"config": config, "record": record, "ours": ours, "java": java}, ensure_ascii=False, indent=1)


def test_random_chains_give_what_java_gives() -> None:
    cases = [
        example for number, kind in enumerate(KINDS) for example in collect(case(kind, RECORDS), COUNT, SEED + number)
    ]
    try:
        answers = run_java({"transforms": cases, "expressions": [], "properties": []})["transforms"]
    except StackError as error:
        pytest.skip(f"no Java or no jars: {error}")
    different = [
        text
        for example, expected in zip(cases, answers, strict=True)
        for text in differences(example["config"], example["records"], expected)
    ]
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:3])
    outcomes = [record for expected in answers for record in expected]
    assert sum(record is not None and "error" not in record for record in outcomes) > len(outcomes) / 3
