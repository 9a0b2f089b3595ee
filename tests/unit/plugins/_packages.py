"""Installed packages as pip leaves them, for the tests of environments."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def package(
    folder: Path,
    name: str,
    *,
    version: str = "1.0",
    code: str = "",
    entries: str = "",
    requires: Sequence[str] = (),
    python: str = "",
) -> Path:
    """Put a package of one module into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    metadata = folder / f"{module}-{version}.dist-info"
    metadata.mkdir()
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {requirement}" for requirement in requires),
    ]
    if python:
        lines.append(f"Requires-Python: {python}")
    (metadata / "METADATA").write_text("\n".join(lines) + "\n")
    (metadata / "RECORD").write_text(f"{module}.py,,\n{metadata.name}/METADATA,,\n{metadata.name}/RECORD,,\n")
    if entries:
        (metadata / "entry_points.txt").write_text(textwrap.dedent(entries))
    return folder


def transform(folder: Path, name: str, *, version: str = "1.0", requires: Sequence[str] = (), body: str = "") -> Path:
    """Put a package with one transform into a folder; ``body`` is run when it is imported."""
    code = f"""
        {body}
        from connectors.options import ConfigDef
        from worker.transforms.base import Transform

        class Shout(Transform):
            version = "{version}"
            aliases = ("com.example.Shout",)
            config_def = ConfigDef()

            def compile(self):
                return lambda record: record
    """
    return package(
        folder,
        name,
        version=version,
        code=code,
        requires=requires,
        entries=f"[millrace.transforms]\nshout = {name.replace('-', '_')}:Shout\n",
    )
