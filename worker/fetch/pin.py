"""Rewrites the pinned files of `artifacts.toml` from its `[roots]`: `python -m worker.fetch.pin`.

For whoever raises a version; it needs Maven, which walks the dependencies. Nothing else in Millrace does.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from worker.fetch.artifacts import MANIFEST, load_manifest
from worker.fetch.errors import StackError
from worker.fetch.resolver import repository_urls
from worker.terminal import say

_SECTION = "[artifacts]\n"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>pin</groupId><artifactId>pin</artifactId><version>1</version><dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = """
<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"""
_CLASSIFIER = """<classifier>{}</classifier><type>{}</type>"""
# A file with a classifier is an application with all it needs inside.
_EXCLUSIONS = """
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""
#: Ends a root that is wanted without what it depends on (it runs where that is there already, as inside Spark).
ALONE = "!"
#: Ends a root that Maven can't resolve even so, since the description it inherits from was never published.
UNDESCRIBED = "!!"


def render_pom(roots: Sequence[str]) -> str:
    """A Maven project that depends on the roots."""
    dependencies: list[str] = []
    for root in roots:
        names, _, extension = root.removesuffix(ALONE).partition("@")
        group, artifact, version, *classifier = (escape(part) for part in names.split(":"))
        whole = _CLASSIFIER.format(classifier[0], extension or "jar") if classifier else ""
        whole += _EXCLUSIONS if classifier or root.endswith(ALONE) else ""
        dependencies.append(_DEPENDENCY.format(group, artifact, version, whole))
    return _POM.format(dependencies="".join(dependencies))


def to_coordinates(path: Path) -> str:
    """Coordinates of a file from its path inside a Maven repository."""
    *group, artifact, version, name = path.parts
    classifier, _, extension = name.removeprefix(f"{artifact}-{version}").partition(".")
    suffix = f":{classifier.removeprefix('-')}" if classifier else ""
    kind = "" if extension == "jar" else f"@{extension}"
    return f"{'.'.join(group)}:{artifact}:{version}{suffix}{kind}"


def resolve_roots(roots: Sequence[str], folder: Path) -> list[Path]:
    """Have Maven bring the roots and all they need at run time into the folder, laid out like a repository.

    Raises:
        StackError: Maven is missing or failed.
    """
    for root in roots:
        if root.endswith(UNDESCRIBED):
            _fetch_jar(root.removesuffix(UNDESCRIBED), folder / "files")
    roots = [root for root in roots if not root.endswith(UNDESCRIBED)]
    maven = shutil.which("mvn")
    if maven is None:
        raise StackError("raising a version needs Maven, and there is no mvn on the PATH; install it")
    (folder / "pom.xml").write_text(render_pom(roots), encoding="utf-8")
    options = ["-DincludeScope=runtime", "-DoutputDirectory=files", "-Dmdep.useRepositoryLayout=true"]
    command = [maven, "-q", "-B", "dependency:copy-dependencies", *options]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise StackError(f"Maven could not resolve {', '.join(roots)}:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    paths = (folder / "files").rglob("*")
    return sorted(path for path in paths if path.is_file() and not path.name.startswith("maven-metadata"))


def _fetch_jar(root: str, folder: Path) -> None:
    """Bring one jar by its address, laid out like a repository.

    Raises:
        StackError: no repository gave it.
    """
    group, artifact, version = root.split(":")
    path = f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"
    target = folder / path
    target.parent.mkdir(parents=True)
    failure = ""
    for url in repository_urls():
        try:
            with urllib.request.urlopen(f"{url}/{path}", timeout=60) as answer:  # noqa: S310 - https, or what the user named
                target.write_bytes(answer.read())
        except OSError as error:
            failure = f"{url}: {error}"
        else:
            return
    raise StackError(f"{root} could not be downloaded from {failure}")


def render_section(files: Mapping[str, tuple[Path, Sequence[str]]]) -> str:
    """The lines of `[artifacts]`: by coordinates a file and the sets that need it."""
    lines: list[str] = []
    for name in sorted(files):
        path, sets = files[name]
        content = path.read_bytes()
        members = ", ".join(f'"{set_name}"' for set_name in sets)
        digest = hashlib.sha256(content).hexdigest()
        lines.append(f'"{name}" = {{ size = {len(content)}, sha256 = "{digest}", in = [{members}] }}\n')
    return "".join(lines)


def main() -> int:
    """Rewrite the manifest in place; exit code 0, or 1 with the reason on standard error."""
    try:
        with tempfile.TemporaryDirectory() as temporary:
            files: dict[str, tuple[Path, list[str]]] = {}
            for name, roots in load_manifest().roots.items():
                say(f"resolving {name}")
                folder = Path(temporary) / name
                folder.mkdir()
                for path in resolve_roots(roots, folder):
                    files.setdefault(to_coordinates(path.relative_to(folder / "files")), (path, []))[1].append(name)
            head, _, _ = MANIFEST.read_text(encoding="utf-8").partition(_SECTION)
            MANIFEST.write_text(head + _SECTION + render_section(files), encoding="utf-8")
    except StackError as error:
        say(str(error))
        return 1
    say(f"{MANIFEST} now pins {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
