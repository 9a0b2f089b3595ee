"""The console by keyboard and on a phone: the focus is where the user was, and what is chosen can be seen."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compose.local.worker import MillraceWorker

    from .conftest import View

PHONE = {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def name(workers: list[MillraceWorker]) -> Iterator[str]:
    """A connector that is stopped."""
    unique = f"keys-{secrets.token_hex(3)}"
    config = {"connector.class": "datagen", "topic": unique, "rate": "1"}
    body = {"name": unique, "config": config, "initial_state": "STOPPED"}
    assert workers[0].request("POST", "/connectors", body)[0] == 201
    yield unique
    workers[0].request("DELETE", f"/connectors/{unique}")


@pytest.fixture
def view(workers: list[MillraceWorker], show: Callable[..., View]) -> View:
    return show(workers[0].url, viewport=PHONE)


@pytest.mark.parametrize("way", ["Escape", "Cancel"])
def test_a_dialog_gives_the_focus_back(view: View, name: str, way: str) -> None:
    page = view.open(f"#/connectors/{name}")
    delete = page.get_by_role("button", name="Delete")
    delete.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    if way == "Escape":
        page.keyboard.press("Escape")
    else:
        dialog.get_by_role("button", name="Cancel").press("Enter")
    expect(dialog).to_have_count(0)
    expect(delete).to_be_focused()


def test_another_page_has_the_focus_when_its_button_is_gone(view: View, name: str) -> None:
    page = view.open(f"#/connectors/{name}/edit")
    page.get_by_role("button", name="Cancel").press("Enter")
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    expect(page.locator("main")).to_be_focused()


def test_a_call_is_copied_in_a_dialog_where_the_clipboard_is_closed(view: View, name: str) -> None:
    # A page that comes over http from another machine has no navigator.clipboard.
    view.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page = view.open("#/connectors")
    page.get_by_label(f"Choose {name}", exact=True).check()
    page.get_by_role("group", name="With those").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("The REST call").click()
    copy = dialog.get_by_role("button", name="Copy")
    copy.press("Enter")
    expect(dialog.get_by_role("button", name="Copied")).to_be_focused()
    page.keyboard.press("Escape")
    search = page.get_by_role("searchbox")
    search.focus()
    page.keyboard.press("Control+V")
    assert f"/connectors/{name}" in search.input_value()


@pytest.mark.parametrize(
    ("fragment", "menu", "tab"),
    [
        ("#/audit", "Audit", None),
        ("#/new", "Connectors", None),
        ("#/new-flow", "Flows", None),
        ("#/new-rules", "Log rules", None),
        ("#/unknown/NAME", "Log rules", None),
        ("#/connectors/NAME/history", "Connectors", "History"),
    ],
)
def test_menus_show_where_one_is(view: View, name: str, fragment: str, menu: str, tab: str | None) -> None:
    page = view.open(fragment.replace("NAME", name))
    current = page.get_by_role("navigation", name="Pages").locator("[aria-current]")
    expect(current).to_have_text(menu)
    expect(current).to_be_in_viewport(ratio=0.9)
    if tab is not None:
        expect(page.get_by_label("Parts").locator("[aria-current]")).to_have_text(tab)
        expect(page.get_by_label("Parts").locator("[aria-current]")).to_be_in_viewport(ratio=0.9)


def test_the_foot_of_a_form_covers_no_field_that_has_the_focus(view: View, name: str) -> None:
    page = view.open(f"#/connectors/{name}/edit")
    page.get_by_label("All ").check()
    page.locator("main").focus()
    covered: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        covered += page.evaluate("""() => {
          const field = document.activeElement, foot = document.querySelector(".form-foot");
          if (foot.contains(field) || !field.closest("form")) return [];
          return field.getBoundingClientRect().bottom > foot.getBoundingClientRect().top ? [field.id || field.outerHTML] : [];
        }""")
    assert covered == []


def test_a_step_that_is_moved_keeps_the_focus(view: View) -> None:
    page = view.open("#/new-rules")
    for operator in ("trim", "set"):
        page.get_by_label("Add a step").select_option(operator)
    page.get_by_role("button", name="Move step 2 down").press("Enter")
    expect(page.get_by_role("button", name="Move step 3 down")).to_be_focused()
    page.get_by_role("button", name="Move step 3 up").press("Enter")
    expect(page.get_by_role("button", name="Move step 2 up")).to_be_focused()
    page.get_by_role("button", name="Move step 2 up").press("Enter")
    expect(page.get_by_role("button", name="Move step 1 up")).to_be_focused()
    page.get_by_role("button", name="Remove step 1").press("Enter")
    expect(page.get_by_role("button", name="Remove step 1")).to_be_focused()


def test_a_plan_keeps_the_focus(view: View) -> None:
    page = view.open("#/new-flow")
    page.get_by_label("Name", exact=True).fill("by-keyboard")
    page.get_by_label("Source and sink").fill("source.topics=flows.orders\nsource.format=plain")
    plan = page.get_by_role("button", name="Plan", exact=True).first
    plan.press("Enter")
    expect(page.get_by_text("It can't work yet")).to_be_visible()
    expect(plan).to_be_focused()
