"""Checks the types of the console's modules, which JSDoc says, with the compiler of TypeScript: a program without Node.

Run by ``./millrace lint`` as ``python -m tests.script_types``. The compiler and the types of libraries are pinned packages.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.console.assets import STATIC
from worker.console.libraries import FILES
from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import say

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Machine -> the package with its compiler.
_COMPILERS: Final = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "arm64"): "darwin-arm64",
}
#: Libraries whose module has a default export, which ``export *`` leaves out.
_DEFAULT: Final = ("htm.js", "uplot.js", "crelt.js")


def options(types: Path) -> dict[str, object]:
    """The compiler's configuration: the modules, and where it finds those that they import. Pure."""
    return {
        "compilerOptions": {
            "allowJs": True,
            "checkJs": True,
            "noEmit": True,
            "target": "es2024",
            "module": "esnext",
            "moduleResolution": "bundler",
            "lib": ["es2024", "dom", "dom.iterable"],
            "strict": False,
            "skipLibCheck": True,
            "types": [],
            "rootDirs": [str(STATIC), str(types)],
        },
        "include": [f"{STATIC}/*.js"],
    }


def declarations(files: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """A declaration for each module that a page loads: it has the types of the package that it is made of. Pure."""
    contents = {}
    for name, (package, path) in files.items():
        if name.endswith(".js"):
            source = f"{package}/hooks" if "/hooks/" in path else package
            default = f'export {{ default }} from "{source}";\n' if name in _DEFAULT else ""
            contents[name.replace(".js", ".d.ts")] = f'export * from "{source}";\n{default}'
    return contents


def main() -> int:
    """Check all modules; 0 if nothing is wrong. Blocks: fetches the compiler once."""
    kind = _COMPILERS.get((platform.system(), platform.machine()))
    if kind is None:
        sys.stderr.write("types of the console's modules are not checked: there is no compiler for this machine\n")
        return 0
    try:
        compiler = _unpacked(f"types-{kind}") / "node_modules" / f"@typescript/typescript-{kind}" / "lib" / "tsc"
        packages = _unpacked("console")
    except StackError as error:
        sys.stderr.write(f"types of the console's modules can't be checked: {error}\n")
        return 1
    with tempfile.TemporaryDirectory() as temporary:
        types = Path(temporary)
        (types / "node_modules").symlink_to(packages / "node_modules")
        for name, text in declarations(FILES).items():
            (types / name).write_text(text, encoding="utf-8")
        (types / "tsconfig.json").write_text(json.dumps(options(types)), encoding="utf-8")
        return subprocess.run([str(compiler), "-p", str(types)], cwd=STATIC, check=False).returncode


def _unpacked(name: str) -> Path:
    """A folder with ``node_modules`` of a set of packages, made once."""
    pinned = load_manifest().members(name)
    digest = "-".join(sorted(artifact.sha256[:6] for artifact in pinned)[:4]) + f"-{len(pinned)}"
    folder = cache_dir() / "unpacked" / f"{name}-{digest}"
    if folder.is_dir():
        return folder
    archives = ArtifactResolver(say=say).fetch(pinned, "what checks the types of the console's modules")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as temporary:
        part = Path(temporary) / "folder"
        for artifact, archive in zip(pinned, archives, strict=True):
            home = part / "node_modules" / artifact.coordinates.rpartition("@")[0]
            with tarfile.open(archive) as opened:
                for member in opened.getmembers():
                    member.name = member.name.partition("/")[2]  # the first folder is "package"
                    if member.isfile():
                        opened.extract(member, home, filter="data")
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    return folder


if __name__ == "__main__":
    sys.exit(main())
