"""How the types of the console's modules are checked."""

from __future__ import annotations

from pathlib import Path

from tests.script_types import declarations, options
from worker.console.assets import STATIC


def test_modules_that_a_page_loads_have_the_types_of_their_packages() -> None:
    files = {
        "preact.js": ("preact", "package/dist/preact.mjs"),
        "hooks.js": ("preact", "package/hooks/dist/hooks.mjs"),
        "htm.js": ("htm", "package/dist/htm.mjs"),
        "uplot.css": ("uplot", "package/dist/uPlot.min.css"),
    }
    assert declarations(files) == {
        "preact.d.ts": 'export * from "preact";\n',
        "hooks.d.ts": 'export * from "preact/hooks";\n',
        "htm.d.ts": 'export * from "htm";\nexport { default } from "htm";\n',
    }


def test_all_modules_are_checked() -> None:
    configuration = options(Path("/types"))
    assert configuration["include"] == [f"{STATIC}/*.js"]
    assert isinstance(configuration["compilerOptions"], dict)
    assert configuration["compilerOptions"]["checkJs"] is True
