"""The picture of the pipeline in the README: an SVG drawn from a list of boxes. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

import yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

_BOX: Final = (190, 48)
_GAP: Final = (56, 16)
_MARGIN: Final = 12
_STYLE: Final = (
    "text{font-family:system-ui,sans-serif;text-anchor:middle;fill:#1c2b33}"
    ".name{font-size:15px;font-weight:600}.remark{font-size:11.5px;fill:#53656f}"
    "rect{fill:#eef6f5;stroke:#0f766e;stroke-width:1.5}path{fill:none;stroke:#7a9c99;stroke-width:1.5}"
    "@media (prefers-color-scheme:dark){text{fill:#e6eef0}.remark{fill:#a9bcc2}"
    "rect{fill:#12302e;stroke:#2dd4bf}path{stroke:#5b7f7c}}"
)


def draw_pipeline(source: str) -> str:
    """The SVG for the YAML of ``docs/images/pipeline.yml``.

    Args:
        source: ``title``, and ``columns`` of boxes, each with a name and a remark.
    """
    picture = yaml.safe_load(source)
    columns: list[list[Sequence[str]]] = picture["columns"]
    width = len(columns) * (_BOX[0] + _GAP[0]) - _GAP[0] + 2 * _MARGIN
    height = max(map(len, columns)) * (_BOX[1] + _GAP[1]) - _GAP[1] + 2 * _MARGIN
    corners = [
        [(_left_edge(number), _top_edge(row, len(column), height)) for row in range(len(column))]
        for number, column in enumerate(columns)
    ]
    lines = [
        _draw_curve((x + _BOX[0], y + _BOX[1] // 2), (next_x, next_y + _BOX[1] // 2))
        for here, following in pairwise(corners)
        for x, y in here
        for next_x, next_y in following
    ]
    boxes = [
        _draw_box(corner, name, remark)
        for column, column_corners in zip(columns, corners, strict=True)
        for (name, remark), corner in zip(column, column_corners, strict=True)
    ]
    title = escape(picture["title"])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            *lines,
            *boxes,
            "</svg>\n",
        ]
    )


def _left_edge(column: int) -> int:
    return _MARGIN + column * (_BOX[0] + _GAP[0])


def _top_edge(row: int, rows: int, height: int) -> int:
    """Boxes of a column stand around the middle."""
    return (height - rows * (_BOX[1] + _GAP[1]) + _GAP[1]) // 2 + row * (_BOX[1] + _GAP[1])


def _draw_curve(start: tuple[int, int], end: tuple[int, int]) -> str:
    middle = (start[0] + end[0]) // 2
    return f'<path d="M{start[0]} {start[1]}C{middle} {start[1]} {middle} {end[1]} {end[0]} {end[1]}"/>'


def _draw_box(corner: tuple[int, int], name: str, remark: str) -> str:
    x, y = corner
    center = x + _BOX[0] // 2
    return (
        f'<rect x="{x}" y="{y}" width="{_BOX[0]}" height="{_BOX[1]}" rx="8"/>'
        f'<text class="name" x="{center}" y="{y + 20}">{escape(name)}</text>'
        f'<text class="remark" x="{center}" y="{y + 37}">{escape(remark)}</text>'
    )
