"""Ask Kafka Connect itself, and keep its answers in ``golden.json``: ``python -m tests.conformance.rest.record BOOTSTRAP``."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compose.local.connect import JavaConnect
from worker.fetch.java import FAST_START

from .answers import Names, roles, run
from .scenario import FIRST, FORWARDED, STEPS

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).with_name("golden.json")
#: Offsets are saved often, so that the story need not wait for them.
PROPERTIES = {
    "offset.flush.interval.ms": "500",
    "exactly.once.source.support": "enabled",
    "scheduled.rebalance.max.delay.ms": "1000",
}


def story(start: Callable[..., Any], folder: Path) -> dict[str, Any]:
    """The whole scenario with workers that ``start(group=..., properties=...)`` starts: one, then two more of another group."""
    file = folder / "input.txt"
    file.write_text("abc\ndef\n")
    run_id = secrets.token_hex(4)
    names = Names(f"rest-{run_id}", str(file))
    alone = start(group=f"rest-{run_id}-1", properties=PROPERTIES)
    answers = run(STEPS, {FIRST: alone.url}, names)
    alone.stop()
    pair = [start(group=f"rest-{run_id}-2", properties=PROPERTIES) for _ in range(2)]
    answers |= run(FORWARDED, roles([worker.url for worker in pair], names), names)
    for worker in pair:
        worker.stop()
    return answers


def main(bootstrap: str) -> None:
    """Record."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:

        def start(**attributes: Any) -> JavaConnect:
            worker = JavaConnect(
                state_dir=Path(tempfile.mkdtemp(dir=folder)), bootstrap=bootstrap, jvm_options=FAST_START, **attributes
            )
            stack.callback(worker.kill)
            return worker.start()

        answers = story(start, Path(folder))
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(answer, sort_keys=True, ensure_ascii=False)}"
        for name, answer in answers.items()
    )
    GOLDEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    sys.stdout.write(f"{len(answers)} answers\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
