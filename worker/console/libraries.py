"""The modules of others that the console's pages are made with: pinned packages of npm, packed into the wheel.

Nothing of them is in the repository. In a checkout they are fetched once, into the cache of the local stack.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import Say, drop_line

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Where a wheel has them.
PACKED: Final = Path(__file__).with_name("libraries")
#: The name a page loads -> the package, and the file in it.
FILES: Final[Mapping[str, tuple[str, str]]] = {
    "preact.js": ("preact", "package/dist/preact.mjs"),
    "hooks.js": ("preact", "package/hooks/dist/hooks.mjs"),
    "htm.js": ("htm", "package/dist/htm.mjs"),
    "uplot.js": ("uplot", "package/dist/uPlot.esm.js"),
    "uplot.css": ("uplot", "package/dist/uPlot.min.css"),
    "cm-state.js": ("@codemirror/state", "package/dist/index.js"),
    "cm-view.js": ("@codemirror/view", "package/dist/index.js"),
    "cm-commands.js": ("@codemirror/commands", "package/dist/index.js"),
    "cm-autocomplete.js": ("@codemirror/autocomplete", "package/dist/index.js"),
    "cm-language.js": ("@codemirror/language", "package/dist/index.js"),
    "cm-streamparser.js": ("@codemirror/streamparser", "package/dist/index.js"),
    "cm-sql.js": ("@codemirror/lang-sql", "package/dist/index.js"),
    "lezer-common.js": ("@lezer/common", "package/dist/index.js"),
    "lezer-highlight.js": ("@lezer/highlight", "package/dist/index.js"),
    "lezer-lr.js": ("@lezer/lr", "package/dist/index.js"),
    "style-mod.js": ("style-mod", "package/src/style-mod.js"),
    "w3c-keyname.js": ("w3c-keyname", "package/index.js"),
    "crelt.js": ("crelt", "package/index.js"),
    "cluster-break.js": ("@marijn/find-cluster-break", "package/src/index.js"),
}
_PATHS: Final = {package.encode(): name.encode() for name, (package, _) in FILES.items() if name.endswith(".js")} | {
    b"preact": b"preact.js"
}
_BARE: Final = re.compile(rb"""(from\s*)(["'])([@\w][^"'\s]*)\2""")
_MAP: Final = re.compile(rb"(?m)^//# sourceMappingURL=.*$")
#: Comments that begin a line, which are a third of a module that is not minified.
_COMMENT: Final = re.compile(rb"(?ms)^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*\n|^[ \t]*//[^\n]*\n")


def adapt_imports(source: bytes) -> bytes:
    """A module as a browser loads it without an import map, which a strict content security policy forbids. Pure."""

    def by_path(match: re.Match[bytes]) -> bytes:
        path = _PATHS.get(match[3])
        return match[0] if path is None else b"%s%s./%s%s" % (match[1], match[2], path, match[2])

    return _COMMENT.sub(b"", _BARE.sub(by_path, _MAP.sub(b"", source)))


def find_libraries(say: Say = drop_line) -> Path:
    """The folder with all of ``FILES``: the wheel's, else one in the cache, where it is made once. Blocks.

    Raises:
        StackError: they can't be fetched, or there is no room.
    """
    if PACKED.is_dir():
        return PACKED
    pinned = load_manifest().members("console")
    digest = hashlib.sha256(
        Path(__file__).read_bytes() + "".join(artifact.sha256 for artifact in pinned).encode()
    ).hexdigest()
    folder = cache_dir() / "console" / digest[:16]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder.parent) as temporary:
            part = Path(temporary) / "libraries"
            pack_libraries(part, say)
            try:
                part.rename(folder)
            except OSError as error:
                if not folder.is_dir():  # else another process was faster, with the same content
                    raise StackError(f"the console's libraries can't be stored in {folder}: {error}") from error
    return folder


def pack_libraries(folder: Path, say: Say = drop_line) -> None:
    """Write ``FILES`` into a folder, which is made. Blocks.

    Raises:
        StackError: a package can't be fetched.
    """
    pinned = load_manifest().members("console")
    archives = {
        artifact.coordinates.rpartition("@")[0]: path
        for artifact, path in zip(
            pinned, ArtifactResolver(say=say).fetch(pinned, "the console's libraries"), strict=True
        )
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, (package, member) in FILES.items():
        with tarfile.open(archives[package]) as archive:
            member_file = archive.extractfile(member)
            if member_file is None:
                raise StackError(f"{package} has no file {member}: is FILES in {__file__} for this version?")
            (folder / name).write_bytes(adapt_imports(member_file.read()))
        with tarfile.open(archives[package]) as archive:
            licence = archive.extractfile("package/LICENSE")
            if licence is not None:
                (folder / f"{package.replace('/', '-')}.LICENSE.txt").write_bytes(licence.read())
