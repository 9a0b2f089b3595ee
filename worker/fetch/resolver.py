"""Brings pinned files from a Maven repository or from npm into the cache. Needs neither tool and, once warm, no network."""

import hashlib
import http.client
import os
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from worker.fetch.artifacts import Artifact
from worker.fetch.errors import StackError
from worker.fetch.paths import cache_dir
from worker.terminal import Say, Step, progress, say

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
NPM = "https://registry.npmjs.org"
_CHUNK = 1 << 18  # bytes


def repository_urls() -> tuple[str, ...]:
    """Repositories to ask, in order: `MILLRACE_MAVEN_URL` (a comma list), else Maven Central."""
    named = os.environ.get("MILLRACE_MAVEN_URL", "")
    return tuple(url.strip().rstrip("/") for url in named.split(",") if url.strip()) or (MAVEN_CENTRAL,)


def npm_urls() -> tuple[str, ...]:
    """Registries of npm to ask, in order: `MILLRACE_NPM_URL` (a comma list), else the public one."""
    named = os.environ.get("MILLRACE_NPM_URL", "")
    return tuple(url.strip().rstrip("/") for url in named.split(",") if url.strip()) or (NPM,)


class _Corrupt(Exception):
    """The response is not the pinned file; a retry may help (a proxy's error page, a cut transfer)."""


# Failures of the network, all worth another attempt. Any other OSError is the local disk's.
_NETWORK = (
    _Corrupt,
    http.client.HTTPException,
    urllib.error.URLError,
    ssl.SSLError,
    TimeoutError,
    ConnectionError,
)


@dataclass(slots=True)
class _Progress:
    """Counts bytes over all download threads."""

    step: Step
    total: int
    done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, size: int) -> None:
        with self.lock:
            self.done += size
            self.step.note = f"{self.done / 1e6:.0f} of {self.total / 1e6:.0f} MB"


@dataclass(frozen=True, slots=True)
class ArtifactResolver:
    """Finds artifacts in the cache, else downloads them, verifies their checksums and stores them.

    Safe to use from several processes at once: a file appears under its final name only when it is whole and right.

    Attributes:
        urls: Maven repositories, tried in order for each file.
        cache: Folder of the cache; files lie in `artifacts/<sha256>/<filename>`.
        attempts: How often each repository is asked for a file before it counts as failed.
        backoff: Seconds before the second attempt; doubled for each later one.
        timeout: Seconds without any byte after which an attempt is given up.
        parallel: Downloads at the same time.
        say: Where progress lines go.
    """

    urls: Sequence[str] = field(default_factory=repository_urls)
    cache: Path = field(default_factory=cache_dir)
    attempts: int = 4
    backoff: float = 0.5
    timeout: float = 30.0
    parallel: int = 8
    say: Say = say

    def location(self, artifact: Artifact) -> Path:
        """Where the artifact lies in the cache, or would."""
        return self.cache / "artifacts" / artifact.sha256 / artifact.filename

    def fetch(self, artifacts: Iterable[Artifact], label: str = "files") -> list[Path]:
        """Have all artifacts in the cache and return their paths in the order given. Blocks; downloads in threads.

        A file in the cache is trusted by its size: it was verified when it was stored.

        Args:
            artifacts: What to bring.
            label: What the progress lines call it.

        Raises:
            StackError: A file could not be had from any repository, or nothing could be written to the cache.
        """
        requested = list(artifacts)
        missing = [artifact for artifact in requested if not self._is_cached(artifact)]
        if missing:
            size = sum(artifact.size for artifact in missing)
            started = time.monotonic()
            text = f"downloading {label}: {len(missing)} files, {size / 1e6:.0f} MB, into {self.cache / 'artifacts'}"
            with progress(text, self.say) as step:
                self._download_all(missing, _Progress(step, size))
            self.say(f"downloaded {label} in {time.monotonic() - started:.1f} s")
        return [self.location(artifact) for artifact in requested]

    def _is_cached(self, artifact: Artifact) -> bool:
        try:
            return self.location(artifact).stat().st_size == artifact.size
        except OSError:
            return False

    def _download_all(self, missing: Sequence[Artifact], progress: _Progress) -> None:
        stop = threading.Event()
        with ThreadPoolExecutor(self.parallel, thread_name_prefix="download") as pool:
            jobs = [pool.submit(self._download_artifact, artifact, progress, stop) for artifact in missing]
            try:
                done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
                for job in done:
                    job.result()
            finally:
                # The first failure, or Ctrl-C, ends the others too: there is no point in waiting for files that are of no use.
                stop.set()
                pool.shutdown(cancel_futures=True)

    def _download_artifact(self, artifact: Artifact, progress: _Progress, stop: threading.Event) -> None:
        failures: list[str] = []
        for url in npm_urls() if artifact.of_npm else self.urls:
            source = f"{url}/{artifact.path}"
            for attempt in range(self.attempts):
                if attempt and stop.wait(self.backoff * 2 ** (attempt - 1)):
                    return
                try:
                    self._download_once(source, artifact, progress, stop)
                except urllib.error.HTTPError as error:
                    failure = f"{source}: HTTP {error.code}"
                    permanent = error.code < 500 and error.code not in {408, 425, 429}
                except _NETWORK as error:
                    failure, permanent = f"{source}: {getattr(error, 'reason', None) or error!r}", False
                except OSError as error:
                    raise StackError(
                        f"{artifact.filename} cannot be stored in {self.cache}: {error.strerror or error!r}; "
                        "free some space or name another folder in MILLRACE_CACHE"
                    ) from error
                else:
                    return
                if permanent:
                    break
            failures.append(failure)
        raise StackError(
            f"{artifact.coordinates} could not be downloaded: {'; '.join(failures)}. "
            "Check the network (HTTPS_PROXY, SSL_CERT_FILE), or name a registry that has it in "
            + ("MILLRACE_NPM_URL" if artifact.of_npm else "MILLRACE_MAVEN_URL")
        )

    def _download_once(self, source: str, artifact: Artifact, progress: _Progress, stop: threading.Event) -> None:
        target = self.location(artifact)
        request = urllib.request.Request(source, headers={"User-Agent": "millrace"})  # noqa: S310  # the operator's own URL
        with urllib.request.urlopen(request, timeout=self.timeout) as response:  # noqa: S310
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".part-", dir=target.parent)
            part, received = Path(temporary), 0
            try:
                digest = hashlib.sha256()
                with os.fdopen(handle, "wb") as out:
                    while (chunk := response.read(_CHUNK)) and not stop.is_set():
                        out.write(chunk)
                        digest.update(chunk)
                        received += len(chunk)
                        progress.add(len(chunk))
                if stop.is_set():
                    return
                if digest.hexdigest() != artifact.sha256:
                    progress.add(-received)
                    raise _Corrupt(
                        f"wrong content: {received} bytes with SHA-256 {digest.hexdigest()}, "
                        f"pinned are {artifact.size} bytes with {artifact.sha256}"
                    )
                part.chmod(0o644)
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
