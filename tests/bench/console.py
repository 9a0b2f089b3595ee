"""The console over many connectors: first rows, key strokes in the filter, bytes of a page, CPU of twenty open pages."""

from __future__ import annotations

import argparse
import gzip
import os
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from compose.local.kafka import KafkaCluster
from compose.local.monitoring.browser import ARGUMENTS, find_chromium
from compose.local.process.service import wait_until
from compose.local.worker import MillraceWorker
from tests.bench._common import cpu_seconds, environment, spread
from worker.terminal import say

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: The time of the first row, by a watch that is there before the page is.
_WATCH = """
new MutationObserver(() => {
  if (window.firstRow === undefined && document.querySelector('tbody tr a')) window.firstRow = performance.now();
}).observe(document, {childList: true, subtree: true})
"""
#: Milliseconds from each key stroke to the next frame.
_TYPE = """
async (text) => {
  const input = document.querySelector('input[type=search]');
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  const times = [];
  for (const letter of text) {
    const begin = performance.now();
    set.call(input, input.value + letter);
    input.dispatchEvent(new Event('input', {bubbles: true}));
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
    times.push(performance.now() - begin);
  }
  return times;
}
"""
_RUNS = 5


def create(worker: MillraceWorker, count: int, tasks: int) -> None:
    """Create connectors that are nearly idle, and wait until all of their tasks run."""
    config = {
        "connector.class": "datagen",
        "topic": "console",
        "rate": "0.01",
        "keys": "10",
        "partitions": str(tasks),
        "tasks.max": str(tasks),
    }
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: worker.create(f"connector-{number:05}", config), range(count)))

    def running() -> bool:
        status, rows = worker.request("GET", "/console/connectors", timeout=120)
        return status == 200 and sum(row["tasks"].get("RUNNING", 0) for row in rows) == count * tasks

    if not wait_until(running, 1200, 0.5):
        raise RuntimeError(f"not all tasks of {count} connectors run")


def look(page: Page, url: str) -> tuple[float, float, list[float]]:
    """Open the table: milliseconds to the first paint and to the first row, and those of key strokes."""
    page.add_init_script(_WATCH)
    page.goto(f"{url}/console#/connectors")
    page.wait_for_selector("tbody tr a")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return paint, page.evaluate("window.firstRow"), page.evaluate(_TYPE, "connector-00")


def page_bytes(page: Page, url: str) -> int:
    """Bytes of all files that the page loads, compressed."""
    sizes: list[int] = []
    page.on(
        "response",
        lambda answer: (
            sizes.append(len(gzip.compress(answer.body(), 9)))
            if "/console" in answer.url and "/console/events" not in answer.url
            else None
        ),
    )
    page.goto(f"{url}/console#/connectors")
    page.wait_for_selector("tbody tr a")
    return sum(sizes)


def streams_cpu(worker: MillraceWorker, pages: int, seconds: float) -> float:
    """Share of a core that the worker's control process uses while that many pages listen.

    It alone serves pages. Task hosts are left out: what they do between two moments varies more than what pages cost.
    """
    host = urlsplit(worker.url)
    with ExitStack() as stack:
        for _ in range(pages):
            connection = stack.enter_context(socket.create_connection((host.hostname, host.port)))
            connection.sendall(b"GET /console/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            stack.enter_context(ThreadPoolExecutor(1)).submit(_drain, connection, seconds + 5)
            stack.callback(connection.shutdown, socket.SHUT_RDWR)
        time.sleep(3)  # the first rows are sent: what follows is a measurement
        before, begin = cpu_seconds(worker.pid, descendants=False), time.monotonic()
        time.sleep(seconds)
        return (cpu_seconds(worker.pid, descendants=False) - before) / (time.monotonic() - begin)


def _drain(connection: socket.socket, seconds: float) -> None:
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        return


def main(argv: list[str]) -> int:
    """Run it; a few minutes."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(prog="millrace bench console", description=__doc__)
    parser.add_argument("--connectors", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=1, help="tasks of each connector")
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(argv)
    print(environment())
    engine = find_chromium(say)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-bench-")))
        kafka = stack.enter_context(KafkaCluster(folder / "kafka", port=None))
        worker = MillraceWorker(folder / "worker", kafka.bootstrap, group="console")
        stack.callback(worker.stop)
        create(worker.start(), options.connectors, options.tasks)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=engine.program, args=list(ARGUMENTS), env={**os.environ, **engine.environment}
        )
        views = []
        for _ in range(_RUNS):
            context = browser.new_context(locale="en-US")
            views.append(look(context.new_page(), worker.url))
            context.close()
        print(f"first paint {spread([view[0] for view in views], 0)} ms")
        size = f"{options.connectors} connectors with {options.connectors * options.tasks} tasks"
        print(f"first row of {size} {spread([view[1] for view in views], 0)} ms")
        print(f"a key stroke in the filter {spread([stroke for view in views for stroke in view[2]], 0)} ms")
        print(f"a page's files {page_bytes(browser.new_page(locale='en-US'), worker.url) / 1000:.0f} KB compressed")
        browser.close()
        # In turns: what the worker does without pages varies more than what the pages add.
        turns = [
            (streams_cpu(worker, 0, options.seconds), streams_cpu(worker, options.pages, options.seconds))
            for _ in range(_RUNS)
        ]
        print(f"{options.pages} open pages: {spread([(busy - idle) * 100 for idle, busy in turns], 1)} % of a core")
        print(f"its control process without pages: {spread([idle * 100 for idle, _ in turns], 1)} % of a core")
    return 0
