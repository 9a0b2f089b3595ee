"""The page of log rules: rules tried on lines step by step, kept, compared, and made out of unknown lines."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from compose.local.process.service import wait_until
from tests.integration.control._logs import RULES, logs, read_topic

from .conftest import USERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from compose.local.worker import MillraceWorker

    from .conftest import Closed, View

LONG = "rules-of-the-nightly-import-of-customer-master-data-from-the-legacy-warehouse-in-frankfurt"


@pytest.fixture(scope="module")
def cluster(workers: list[MillraceWorker]) -> MillraceWorker:
    """A worker of a cluster that keeps two rule sets; one has two versions."""
    worker = workers[0]
    for name, rules, comment in (
        (LONG, RULES, "the first"),
        (LONG, _versioned(), "the status, too"),
        ("web", RULES, ""),
    ):
        status, answer = worker.request("PUT", f"/rules/{name}", {"rules": rules, "comment": comment})
        assert status in (200, 201), answer
    return worker


def _versioned() -> dict[str, Any]:
    """RULES with one column more."""
    steps = [
        {"regexExtract": {"pattern": r"^GET (?P<path>\S+)( (?P<status>\d+))?$"}},
        {"saveAs": {"columns": [{"name": "path"}, {"name": "status", "optional": True}]}},
    ]
    return {"tables": [{"name": "requests", "version": 2, "groups": [{"name": "get", "steps": steps}]}]}


def count_records(bootstrap: str, topic: str) -> int:
    """How many records a topic has; asked in another thread, since Playwright's loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return len(pool.submit(read_topic, bootstrap, topic).result())


@pytest.fixture
def view(cluster: MillraceWorker, show: Callable[..., View]) -> View:
    return show(cluster.url)


def test_rule_sets_are_listed_with_their_versions(view: View) -> None:
    page = view.open("#/rules")
    expect(page.get_by_role("link", name=LONG)).to_be_visible()
    expect(page.get_by_text("version 2 of")).to_contain_text("the status, too")
    view.check()


def test_each_step_shows_what_it_makes_of_the_samples(view: View) -> None:
    page = view.open("#/rules/web")
    expect(page.get_by_text("No lines yet")).to_be_visible()
    view.check()
    lines = page.get_by_role("textbox", name="Lines", exact=True)
    lines.fill("GET /cart\nGET /basket\nPOST /cart")
    result = page.get_by_role("region", name="Result")
    expect(result.locator(".matched")).to_contain_text("67 %")
    expect(result.locator(".matched")).to_contain_text("2 of 3 lines")
    expect(result.locator(".group-result h3")).to_contain_text("2 of 3 lines, 67 %")
    lines.fill("GET /cart\nGET /basket")
    expect(result.locator(".group-result h3")).to_contain_text("2 of 2 lines, 100 %")
    lines.fill("GET /cart\nGET /basket\nPOST /cart")
    step = result.locator(".step-results li").first
    expect(step).to_contain_text("1 error")
    step.locator("summary").click()
    expect(step.get_by_text("POST /cart")).to_be_visible()
    expect(result.get_by_role("cell", name="/basket")).to_be_visible()
    expect(page.locator(".sample-lines .unknown")).to_have_text("unknown POST /cart")
    view.check()


def test_steps_are_added_changed_moved_and_removed(view: View) -> None:
    page = view.open("#/rules/web")
    page.get_by_label("Lines", exact=True).fill("GET /Cart")
    page.get_by_label("Add a step").select_option("replace")
    steps = page.locator(".steps .step")
    expect(steps).to_have_count(3)
    expect(page.get_by_text("The rules can't be tried")).to_be_visible()
    area = steps.nth(1).get_by_role("textbox")
    area.fill("{")
    expect(page.get_by_text("This is not JSON")).to_be_visible()
    area.fill('{"field": "path", "pattern": "Cart", "by": "basket"}')
    result = page.get_by_role("region", name="Result")
    expect(result.get_by_role("cell", name="/basket")).to_be_visible()
    view.check()
    page.get_by_role("button", name="Move step 2 up").click()
    expect(steps.first).to_contain_text("replace")
    expect(page.get_by_text("The rules can't be tried")).to_be_visible()
    page.get_by_role("button", name="Remove step 1").click()
    expect(result.get_by_role("cell", name="/Cart")).to_be_visible()


def test_rules_are_edited_as_text_and_as_steps(view: View) -> None:
    page = view.open("#/rules/web")
    page.get_by_label("Lines", exact=True).fill("PUT /cart")
    page.get_by_role("button", name="Edit as text").click()
    area = page.get_by_label("Rules in YAML or JSON")
    expect(area).to_have_value(r"""tables:
- name: requests
  groups:
  - name: get
    steps:
    - regexExtract:
        pattern: ^GET (?P<path>\S+)$
    - saveAs:
        columns:
        - name: path
""")
    area.fill(area.input_value().replace("GET", "PUT"))
    expect(page.locator(".matched")).to_contain_text("100 %")
    view.check()
    area.fill("tables: [")
    page.get_by_role("button", name="Edit as steps").click()
    expect(page.get_by_text("The text can't be shown as steps")).to_be_visible()
    area.fill("tables: [{name: x, groups: [{name: g, steps: [{saveAs: {columns: [{name: line}]}}]}]}]")
    page.get_by_role("button", name="Edit as steps").click()
    expect(page.locator(".step")).to_have_count(1)


def test_whole_numbers_keep_their_digits(view: View, cluster: MillraceWorker) -> None:
    """Those beyond 2^53, too: in the result, in the rows of a golden line, and when the set is opened later."""
    name = f"digits-{secrets.token_hex(3)}"
    steps = [
        {"regexExtract": {"pattern": r"^id (?P<id>\d+)$"}},
        {"saveAs": {"columns": [{"name": "id", "type": "long"}]}},
    ]
    rules = {"tables": [{"name": "ids", "groups": [{"name": "all", "steps": steps}]}]}
    status, answer = cluster.request("PUT", f"/rules/{name}", {"rules": rules})
    assert status in (200, 201), answer
    for number in (9007199254740993, 9007199254740995):
        page = view.open("#/rules")
        page = view.open(f"#/rules/{name}")
        page.get_by_label("Lines", exact=True).fill(f"id {number}")
        expect(page.get_by_role("region", name="Result").get_by_role("cell", name=str(number))).to_be_visible()
        page.get_by_role("button", name="Keep as golden").click()
        page.get_by_role("button", name="Save …").click()
        page.get_by_role("dialog").get_by_role("button", name="Save").click()
        expect(page.get_by_text("It is saved.")).to_be_visible()
    assert cluster.request("GET", f"/rules/{name}")[1]["rules"]["golden"] == [
        {"line": f"id {number}", "rows": {"ids": [{"id": number}]}} for number in (9007199254740993, 9007199254740995)
    ]


def test_a_golden_line_guards_a_new_version(view: View, cluster: MillraceWorker) -> None:
    name = f"guarded-{secrets.token_hex(3)}"
    page = view.open("#/new-rules")
    page.get_by_label("Lines", exact=True).fill("one line")
    page.get_by_role("button", name="Keep as golden").click()
    expect(page.locator(".golden")).to_contain_text("one line")
    page.get_by_role("button", name="Save …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    view.check()
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    assert cluster.request("GET", f"/rules/{name}")[1]["rules"]["golden"] == [
        {"line": "one line", "rows": {"lines": [{"line": "one line"}]}}
    ]
    page.get_by_label("Lines", exact=True).fill("one line")
    page.get_by_label("Add a step").select_option("trim")
    page.locator(".step").first.get_by_role("textbox").fill('{"field": "line", "characters": "e"}')
    expect(page.get_by_text("1 golden line makes other rows")).to_be_visible()
    view.check()
    page.get_by_role("button", name="Save …").click()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("It was refused")).to_be_visible()
    view.check()
    dialog.get_by_label("Save it all the same").check()
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("It is saved.")).to_be_visible()
    saved = cluster.request("GET", f"/rules/{name}")[1]
    assert (saved["version"], saved["forced"]) == (2, True)


def test_versions_are_compared_as_text_and_on_lines(view: View) -> None:
    page = view.open(f"#/rules/{LONG}/versions")
    expect(page.locator(".text-diff .come").first).to_contain_text("+")
    page.get_by_label("Lines", exact=True).fill("GET /\nGET / 200")
    page.get_by_role("button", name="Compare on these lines").click()
    expect(page.get_by_text("2 lines make other rows.")).to_be_visible()
    view.check()
    page.get_by_role("link", name="Open version 1").click()
    expect(page.get_by_text("Version 1 is open")).to_be_visible()
    expect(page.locator(".step").first.get_by_role("textbox")).not_to_have_value("status")


@pytest.mark.slow
def test_a_rule_is_made_of_an_unknown_line_and_the_line_replayed(
    view: View, cluster: MillraceWorker, bootstrap: str, tmp_path: Path
) -> None:
    name, source = f"shop-{secrets.token_hex(3)}", tmp_path / "app.log"
    source.write_text("GET /1\njob 7 took=12ms\njob 8 took=9ms\n")
    rules = f"{name}-rules"
    assert cluster.request("PUT", f"/rules/{rules}", {"rules": RULES})[0] == 201
    cluster.create(name, logs(name, file=str(source), **{"rules.name": rules}))
    assert wait_until(lambda: count_records(bootstrap, f"{name}.unknown_table") == 2, 60)
    page = view.open("#/rules")
    page.locator("li").filter(has=page.get_by_role("link", name=name, exact=True)).get_by_role(
        "link", name="Unknown lines"
    ).click()
    expect(page.get_by_text("2 lines", exact=True).first).to_be_visible()
    view.check()
    page.get_by_label("Table of new rules").fill("jobs")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Make a rule of this").click()
    expect(page.get_by_text("The proposed rule is added")).to_be_visible()
    result = page.get_by_role("region", name="Result")
    expect(result.locator(".matched")).to_contain_text("100 %")
    view.check()
    page.get_by_role("button", name="Save …").click()
    page.get_by_role("dialog").get_by_label("Comment").fill("jobs")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("It is saved.")).to_be_visible()
    assert wait_until(lambda: cluster.request("GET", f"/rules/{rules}")[1]["connectors"] == {name: 2}, 30)
    page.get_by_role("link", name=f"Unknown lines of {name}").click()
    page.get_by_role("button", name="Replay …").click()
    view.check()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()

    def replays() -> list[str]:
        # None yet, where this is asked before the page has sent its request.
        return [replay["state"] for replay in cluster.request("GET", f"/connectors/{name}/replay")[1]]

    assert wait_until(lambda: replays() == ["completed"], 90), replays()
    expect(page.get_by_text("2 of 2 lines accepted")).to_be_visible()
    expect(page.get_by_text("No unknown lines")).to_be_visible()
    view.check()
    assert wait_until(lambda: count_records(bootstrap, f"{name}.jobs") == 2, 30)
    cluster.request("DELETE", f"/connectors/{name}")


def test_a_rule_set_that_is_not_there(view: View) -> None:
    page = view.open("#/rules/nothing")
    expect(page.get_by_text("There is no rule set of this name")).to_be_visible()
    view.check()


def test_a_rule_set_is_deleted(view: View, cluster: MillraceWorker) -> None:
    name = f"gone-{secrets.token_hex(3)}"
    assert cluster.request("PUT", f"/rules/{name}", {"rules": RULES})[0] == 201
    page = view.open(f"#/rules/{name}")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Log rules")).to_be_visible()
    assert cluster.request("GET", f"/rules/{name}")[0] == 404


def test_a_reader_looks_at_rules_and_can_not_try_them(closed: Closed, show: Callable[..., View]) -> None:
    closed.write(USERS)
    closed.request("PUT", "/rules/kept", {"rules": RULES})
    view = show(closed.worker.url)
    page = view.open("#/rules")
    page.get_by_label("User").fill("reader")
    page.get_by_label("Password").fill("redaer")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="kept").click()
    expect(page.get_by_text("Trying and saving them needs the role admin")).to_be_visible()
    expect(page.locator(".step").first.get_by_role("textbox")).not_to_be_editable()
    expect(page.get_by_role("button", name="Save …")).to_have_count(0)
    view.check()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1280), ("light", 390)])
def test_pages_of_rules_fit_every_width_and_scheme(
    cluster: MillraceWorker, show: Callable[..., View], scheme: str, width: int
) -> None:
    view = show(cluster.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    for fragment, sign in (
        ("#/rules", ".cards"),
        (f"#/rules/{LONG}", ".step"),
        (f"#/rules/{LONG}/versions", ".text-diff"),
    ):
        page = view.open(fragment)
        page.reload()
        expect(page.locator(sign).first).to_be_visible()
        if sign == ".step":
            page.get_by_label("Lines", exact=True).fill("GET /a-path 200\nanother line")
            expect(page.locator(".matched")).to_contain_text("50 %")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        view.check()


def test_a_step_is_changed_by_keyboard(view: View) -> None:
    page = view.open("#/rules/web")
    page.get_by_label("Lines", exact=True).fill("GET /k")
    page.get_by_label("Lines", exact=True).focus()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "step-0-0-0":
            break
    page.keyboard.press("Control+A")
    page.keyboard.type('{"pattern": "^GET (?P<path>.)"}')
    expect(page.get_by_role("region", name="Result").get_by_role("cell", name="/", exact=True)).to_be_visible()
