"""Answers where the connector's code, in a task host, fails: the status says whether a retry makes sense."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compose.local.worker import MillraceWorker
from tests.integration.control._cluster import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE, JOB = "failing_answers.FailingSource", "failing_answers.FailingJob"
OFFSETS = {"offsets": [{"partition": {"a": 1}, "offset": {"b": 2}}]}
#: Name -> method, path and body, and the statuses for a source that is unavailable and for a refusal.
QUESTIONS: dict[str, tuple[str, str, Any, int, int]] = {
    "change of offsets": ("PATCH", "/connectors/source/offsets", OFFSETS, 503, 400),
    "snapshot": ("POST", "/connectors/source/snapshots", {"tables": ["t"]}, 503, 400),
    "lag": ("GET", "/connectors/source/lag", None, 503, 400),
    "offsets of a job": ("GET", "/connectors/job/offsets", None, 503, 400),
    # A job that can't make one now is in conflict with the request.
    "savepoints": ("GET", "/connectors/job/savepoints", None, 409, 400),
    "plan": ("POST", "/flows/plan", {"connector.class": JOB, "name": "new"}, 503, 400),
}


@pytest.fixture(scope="module")
def failure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that says how questions fail."""
    return tmp_path_factory.mktemp("failure") / "failure"


@pytest.fixture(scope="module")
def worker(bootstrap: str, failure: Path) -> Iterator[MillraceWorker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).with_name("plugin")))
        started = MillraceWorker(
            state_dir=failure.parent,
            bootstrap=bootstrap,
            group=f"failing-{secrets.token_hex(4)}",
            processes=1,
            properties={"plugin.path": f"{SOURCE.replace('.', ':')},{JOB.replace('.', ':')}"},
        ).start()
    try:
        for name, connector in (("source", SOURCE), ("job", JOB)):
            config = {"connector.class": connector, "failure": str(failure)}
            created = started.request(
                "POST", "/connectors", {"name": name, "config": config, "initial_state": "STOPPED"}
            )
            assert created[0] == 201, created
        yield started
    finally:
        started.kill()


def ask(worker: MillraceWorker, question: str, failure: Path) -> tuple[int, Any]:
    method, path, body, _, _ = QUESTIONS[question]
    if question == "plan":
        body = {**body, "failure": str(failure)}
    return worker.request(method, path, body)


@pytest.mark.parametrize("question", QUESTIONS)
def test_errors_of_connectors_have_the_status_of_their_kind(
    worker: MillraceWorker, failure: Path, question: str
) -> None:
    away, refused = QUESTIONS[question][3:]
    for kind, status, text in (("away", away, "the source is away"), ("refuses", refused, "it is refused")):
        failure.write_text(kind)
        answered, body = ask(worker, question, failure)
        failure.unlink()
        assert (answered, text in body["message"]) == (status, True), body


# Each host that ends is replaced after a longer pause: one question of each kind.
@pytest.mark.parametrize("question", ["validation", "change of offsets", "savepoints"])
def test_a_task_host_that_ends_is_a_reason_to_retry(worker: MillraceWorker, failure: Path, question: str) -> None:
    wait_for(lambda: worker.request("GET", "/connectors/source/lag")[0] == 200, "the task host answers")
    failure.write_text("ends")
    if question == "validation":
        config = {"connector.class": SOURCE, "name": "source", "failure": str(failure)}
        status, body = worker.request("PUT", "/connectors/source/config", config)
    else:
        status, body = ask(worker, question, failure)
    assert not failure.exists(), "the question has not come to the task host"
    assert (status, "ended before it answered; retry in a moment" in body["message"]) == (503, True), body
