"""Hooks of the documentation site (``mkdocs.yml``): pages outside of ``docs`` become part of it, and links follow them."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

#: Pages outside of ``docs`` -> their paths in the site.
_OUTSIDE: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/vulnerabilities.md",
}
#: A Markdown link or picture: its text, and its target without and with the heading.
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCED: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def find_outside_pages(root: Path) -> dict[str, str]:
    """The pages outside of ``docs``, by their paths in the checkout, with their places in the site.

    Args:
        root: The checkout.
    """
    pages = dict(_OUTSIDE)
    for package in ("connectors", "spark_jobs"):
        for page in sorted((root / package).rglob("*.md")):
            path = page.relative_to(root).as_posix()
            pages[path] = f"project/{path.lower()}"
    return pages


def rewrite_links(markdown: str, source: str, site_path: str, outside: dict[str, str]) -> str:
    """A page's Markdown with links as the site has them; a link to a file that is no page becomes plain text. Pure.

    Args:
        markdown: The page.
        source: Its path in the checkout.
        site_path: Its path in the site.
        outside: The pages outside of ``docs``: path in the checkout -> path in the site.
    """

    def rewrite(match: re.Match[str]) -> str:
        label, target, heading = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in outside:
            path = outside[path]
        elif path.startswith("docs/") and (path.endswith((".md", ".png", ".svg")) or "." in posixpath.basename(path)):
            path = path.removeprefix("docs/")
        elif path == "docs/reference":
            path = "reference/worker.md"
        else:
            return label
        return f"[{label}]({posixpath.relpath(path, posixpath.dirname(site_path) or '.')}{heading})"

    parts = _FENCED.split(markdown)
    # Every second part is a fenced block, which stays as it is.
    return "".join(part if number % 2 else _LINK.sub(rewrite, part) for number, part in enumerate(parts))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of ``docs``; called by MkDocs."""
    root = Path(config.config_file_path or "").parent
    for path, site_path in find_outside_pages(root).items():
        files.append(File.generated(config, site_path, content=(root / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links rewritten; called by MkDocs."""
    del files
    outside = find_outside_pages(Path(config.config_file_path or "").parent)
    sources = {site_path: path for path, site_path in outside.items()}
    site_path = page.file.src_uri
    return rewrite_links(markdown, sources.get(site_path, f"docs/{site_path}"), site_path, outside)
