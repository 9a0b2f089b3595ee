"""A consumer of one topic that writes down when the row of each number came: ``python -m ... BOOTSTRAP TOPIC FILE``.

Rows carry their number as ``#123#`` in a string, whatever their form. FILE gets lines ``NUMBER TIME``, the time in nanoseconds
of the machine's monotonic clock, which all of its processes share. Runs until SIGTERM.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    from types import FrameType

_NUMBER: Final = re.compile(rb"#(\d+)#")
_FLUSH_NS: Final = 200_000_000


def main(arguments: list[str]) -> int:
    """Consume committed records from the topic's beginning, until the signal comes."""
    bootstrap, topic, path = arguments
    ended = False

    def end(_signal: int, _frame: FrameType | None) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    search, clock = _NUMBER.search, time.monotonic_ns
    flushed = clock()
    with Path(path).open("wb") as file:
        while not ended:
            message = consumer.poll(0.1)
            now = clock()
            value = None if message is None or message.error() is not None else message.value()
            match = None if value is None else search(value)
            if match is not None:
                file.write(b"%s %d\n" % (match[1], now))
            if now - flushed > _FLUSH_NS:
                file.flush()
                flushed = now
    consumer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
