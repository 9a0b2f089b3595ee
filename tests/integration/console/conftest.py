"""A real browser on real workers: two that let everybody in, and one that asks who its callers are."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Error, expect, sync_playwright

from compose.local.monitoring.browser import ARGUMENTS, Chromium, find_chromium
from compose.local.process import service
from compose.local.process.http import send_request
from compose.local.worker import MillraceWorker
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Playwright

#: Milliseconds that something may take to be seen.
PATIENCE = 30_000 * service.PATIENCE


@dataclass
class View:
    """A page of the console, watched for what it complains of.

    Attributes:
        page: Playwright's page.
        url: the console's address.
        axe: the script that checks accessibility.
        complaints: errors of scripts and of the content security policy.
    """

    page: Page
    url: str
    axe: str
    complaints: list[str] = field(default_factory=list)

    def open(self, fragment: str = "#/connectors") -> Page:
        """Go to a page of the console, such as ``#/connectors``."""
        self.page.goto(f"{self.url}{fragment}")
        return self.page

    def check(self) -> None:
        """Nothing is wrong with what is shown now: no violation of accessibility, no error."""
        # A page that is being loaded has no heading yet.
        expect(self.page.locator("h1").first).to_be_visible()
        # Playwright evaluates outside of the page's policy.
        self.page.evaluate(self.axe)
        result: dict[str, Any] = self.page.evaluate("axe.run()")
        assert [
            (violation["id"], [node["html"] for node in violation["nodes"]]) for violation in result["violations"]
        ] == []
        assert self.complaints == []


@pytest.fixture(scope="module")
def engine() -> Chromium:
    """The browser's files."""
    return find_chromium(say)


@pytest.fixture(scope="module")
def browser(engine: Chromium) -> Iterator[Browser]:
    """A browser for a module: the loop that it runs in this thread would be in the way of other tests."""
    with sync_playwright() as playwright:
        started = _launch(playwright, engine)
        yield started
        started.close()


def _launch(playwright: Playwright, engine: Chromium) -> Browser:
    """A browser that runs. A browser may crash while it starts on a busy machine."""
    failures: list[Error] = []
    while len(failures) < 3:
        try:
            return playwright.chromium.launch(
                executable_path=engine.program,
                args=list(ARGUMENTS),
                env={**os.environ, **engine.environment},
                timeout=4 * PATIENCE,
            )
        except Error as error:
            failures.append(error)
    raise failures[-1]


@pytest.fixture
def show(browser: Browser, engine: Chromium) -> Iterator[Callable[..., View]]:
    """Opens pages: ``view = show(worker.url)``; further arguments are those of a browser's context."""
    script = engine.axe.read_text(encoding="utf-8")
    with ExitStack() as stack:

        def open_view(url: str, **options: Any) -> View:
            context = browser.new_context(**{"locale": "en-US", "viewport": {"width": 1280, "height": 800}, **options})
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            expect.set_options(timeout=PATIENCE)
            view = View(page, f"{url}/console", script)
            page.on("pageerror", lambda error: view.complaints.append(str(error)))
            page.on(
                "console",
                lambda message: (
                    view.complaints.append(message.text)
                    if message.type == "error" and "Failed to load resource" not in message.text
                    else None
                ),
            )
            return view

        yield open_view


@pytest.fixture(scope="session")
def workers(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[MillraceWorker]]:
    """Two workers of a cluster that lets everybody in."""
    group = f"console-{secrets.token_hex(4)}"
    both = [
        MillraceWorker(tmp_path_factory.mktemp(f"worker-{number}"), bootstrap, group=group, processes=1)
        for number in (1, 2)
    ]
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda worker: worker.start(), both))
        yield both
    finally:
        for worker in both:
            worker.kill()


#: Name -> role; a password is the name backwards.
USERS = {"reader": "read", "chief": "admin", "seller": "read:sales-.*,operate:sales-eu"}


def hashed(password: str) -> str:
    """A cheap hash for a users file."""
    derived = hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt" * 4, 10_000)
    salt, digest = (base64.b64encode(part).decode().rstrip("=") for part in (b"salt" * 4, derived))
    return f"$pbkdf2-sha256$10000${salt}${digest}"


@dataclass
class Closed:
    """A worker that asks who its callers are.

    Attributes:
        worker: the worker.
        users: its file of users.
    """

    worker: MillraceWorker
    users: Path

    def write(self, users: dict[str, str]) -> None:
        """Write the file of users."""
        self.users.write_text("".join(f"{name}={hashed(name[::-1])},{roles}\n" for name, roles in users.items()))

    def create(self, name: str, config: dict[str, str]) -> None:
        """Create a connector that is stopped."""
        self.request("POST", "/connectors", {"name": name, "config": config, "initial_state": "STOPPED"})

    def request(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a request of the administrator, which is a success."""
        header = f"Basic {base64.b64encode(b'chief:feihc').decode()}"
        status, answer = send_request(method, f"{self.worker.url}{path}", body, headers={"Authorization": header})
        assert status in (200, 201, 204), answer
        return answer


@pytest.fixture(scope="session")
def closed(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    """That worker, with three connectors."""
    folder = tmp_path_factory.mktemp("closed")
    closed_worker = Closed(
        MillraceWorker(
            folder,
            bootstrap,
            group=f"console-{secrets.token_hex(4)}",
            processes=1,
            properties={
                "rest.authentication": "basic",
                "rest.auth.users.file": str(folder / "users"),
                "config.providers": "file",
                "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
            },
        ),
        folder / "users",
    )
    closed_worker.write(USERS)
    try:
        closed_worker.worker.start()
        for name in ("sales-eu", "sales-us", "stock"):
            closed_worker.create(name, {"connector.class": "datagen", "topic": name, "rate": "1"})
        yield closed_worker
    finally:
        closed_worker.worker.kill()
