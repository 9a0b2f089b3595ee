"""Public clients' calls, asked of Kafka's worker and of ours: no client fails, and all read the same."""

from __future__ import annotations

import json
import secrets
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.java_compiler import compiled
from worker.fetch.artifacts import load_manifest
from worker.fetch.java import find_java
from worker.fetch.resolver import ArtifactResolver

from .calls import CLIENTS
from .replay import replay

if TYPE_CHECKING:
    from .replay import Client


def _values(folder: Path) -> dict[str, str]:
    file = folder / f"{secrets.token_hex(4)}.txt"
    file.write_text("one\ntwo\n", encoding="ascii")
    name = f"x{secrets.token_hex(4)}"
    return {"id": name, "file": str(file), "topic": f"topic-of-{name}"}


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_call_of_a_client(urls: tuple[str, str], client: Client, tmp_path: Path) -> None:
    theirs, ours = (replay(client, url, _values(tmp_path)) for url in urls)
    # How soon there is a status is not Kafka's to say: a worker of ours always knows one.
    assert ours == theirs


def test_akhqs_client_unmodified(urls: tuple[str, str], tmp_path: Path) -> None:
    java = find_java()
    jars = ArtifactResolver().fetch(load_manifest().members("akhq-client"), "AKHQ's client")
    classes = compiled(java, Path(__file__).with_name("Akhq.java"), jars)
    answers = []
    for url in urls:
        values = _values(tmp_path)
        done = subprocess.run(
            [
                str(java.executable),
                "-XX:TieredStopAtLevel=1",
                "-Xmx128m",
                "-cp",
                ":".join(map(str, (classes, *jars))),
                "Akhq",
                url,
                values["id"],
                values["file"],
                values["topic"],
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        text = done.stdout
        for key, value in values.items():
            text = text.replace(value, key.upper())
        answers.append(_ordered(json.loads(text)))
    theirs, ours = answers
    # What Kafka's worker refuses to validate is its own affair; nothing that ours lists may be refused.
    theirs.pop("unreadable")
    assert ours.pop("unreadable") == []
    assert ours == theirs


def _ordered(answers: dict[str, Any]) -> dict[str, Any]:
    return {
        call: dict(sorted(answer.items())) if isinstance(answer, dict) else answer for call, answer in answers.items()
    }
