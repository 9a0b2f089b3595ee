"""The resolver against a real HTTP server that misbehaves on request."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from compose.local.ports import LOOPBACK, free_port
from worker.fetch.artifacts import Artifact
from worker.fetch.errors import StackError
from worker.fetch.resolver import MAVEN_CENTRAL, ArtifactResolver, repository_urls


@dataclass
class Repository:
    """A Maven repository; `trouble` gets the number of requests for a file so far and may answer in its place."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    trouble: Callable[[BaseHTTPRequestHandler, int], bool] = lambda _handler, _count: False

    def add(self, coordinates: str, content: bytes) -> Artifact:
        artifact = Artifact(coordinates, hashlib.sha256(content).hexdigest(), len(content), frozenset({"x"}))
        self.files["/" + artifact.path] = content
        return artifact


@pytest.fixture
def repository() -> Iterator[Repository]:
    yield from _serve()


@pytest.fixture
def mirror() -> Iterator[Repository]:
    yield from _serve()


def _serve() -> Iterator[Repository]:
    repository = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.asked.append(self.path)
            if repository.trouble(self, repository.asked.count(self.path)):
                return
            content = repository.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    repository.url = f"http://{LOOPBACK}:{server.server_port}"
    try:
        yield repository
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _resolver(cache: Path, *urls: str, lines: list[str] | None = None) -> ArtifactResolver:
    return ArtifactResolver(
        urls=urls, cache=cache, backoff=0.001, timeout=5, say=(lines if lines is not None else []).append
    )


def _leftovers(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.name.startswith(".part")]


def test_files_arrive_in_order_and_only_once(repository: Repository, tmp_path: Path) -> None:
    artifacts = [repository.add(f"g:a{n}:1", b"x" * (n + 1)) for n in range(20)]
    lines: list[str] = []
    resolver = _resolver(tmp_path, repository.url, lines=lines)
    paths = resolver.fetch(artifacts, "things")
    assert [path.read_bytes() for path in paths] == [b"x" * (n + 1) for n in range(20)]
    assert paths[3] == tmp_path / "artifacts" / artifacts[3].sha256 / "a3-1.jar"
    assert lines[0].startswith("downloading things: 20 files")
    assert not any("\r" in line for line in lines)
    repository.asked.clear()
    assert resolver.fetch(artifacts) == paths
    assert repository.asked == []


def test_a_warm_cache_needs_no_network(repository: Repository, tmp_path: Path) -> None:
    artifact = repository.add("g:a:1", b"content")
    _resolver(tmp_path, repository.url).fetch([artifact])
    nowhere = f"http://{LOOPBACK}:{free_port()}"
    assert _resolver(tmp_path, nowhere).fetch([artifact])[0].read_bytes() == b"content"


def test_wrong_content_is_never_stored(repository: Repository, tmp_path: Path) -> None:
    artifact = repository.add("g:a:1", b"right")
    repository.files["/" + artifact.path] = b"wrong"
    with pytest.raises(StackError, match=r"g:a:1 could not be downloaded: .*wrong content.*pinned are 5 bytes"):
        _resolver(tmp_path, repository.url).fetch([artifact])
    assert not _resolver(tmp_path).location(artifact).exists()
    assert _leftovers(tmp_path) == []


def test_a_server_error_is_retried(repository: Repository, tmp_path: Path) -> None:
    artifact = repository.add("g:a:1", b"content")

    def fail_twice(handler: BaseHTTPRequestHandler, count: int) -> bool:
        if count > 2:
            return False
        handler.send_error(503)
        return True

    repository.trouble = fail_twice
    assert _resolver(tmp_path, repository.url).fetch([artifact])[0].read_bytes() == b"content"
    assert len(repository.asked) == 3


def test_a_cut_transfer_is_retried(repository: Repository, tmp_path: Path) -> None:
    artifact = repository.add("g:a:1", b"content")

    def cut_once(handler: BaseHTTPRequestHandler, count: int) -> bool:
        if count > 1:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", "7")
        handler.end_headers()
        handler.wfile.write(b"con")
        handler.close_connection = True
        return True

    repository.trouble = cut_once
    assert _resolver(tmp_path, repository.url).fetch([artifact])[0].read_bytes() == b"content"
    assert _leftovers(tmp_path) == []


def test_a_missing_file_is_asked_of_the_next_repository_at_once(
    repository: Repository, mirror: Repository, tmp_path: Path
) -> None:
    artifact = mirror.add("g:a:1", b"content")
    assert _resolver(tmp_path, repository.url, mirror.url).fetch([artifact])[0].read_bytes() == b"content"
    assert len(repository.asked) == 1


def test_the_error_names_every_source_and_the_fix(repository: Repository, tmp_path: Path) -> None:
    artifact = Artifact("g:a:1", "0" * 64, 7, frozenset({"x"}))
    nowhere = f"http://{LOOPBACK}:{free_port()}"
    with pytest.raises(StackError) as caught:
        _resolver(tmp_path, repository.url, nowhere).fetch([artifact])
    text = str(caught.value)
    assert f"{repository.url}/g/a/1/a-1.jar: HTTP 404" in text
    assert f"{nowhere}/g/a/1/a-1.jar: " in text
    assert "refused" in text
    assert "MILLRACE_MAVEN_URL" in text


def test_one_failure_ends_the_other_downloads(repository: Repository, tmp_path: Path) -> None:
    artifacts = [Artifact("g:none:1", "0" * 64, 7, frozenset({"x"}))]
    artifacts += [repository.add(f"g:a{n}:1", b"x" * (n + 1)) for n in range(200)]
    with pytest.raises(StackError, match="g:none:1"):
        _resolver(tmp_path, repository.url).fetch(artifacts)
    assert len(repository.asked) < 200
    assert _leftovers(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_named(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file where the folder should be", encoding="utf-8")
    with pytest.raises(StackError, match=r"a-1\.jar cannot be stored in .*MILLRACE_CACHE"):
        _resolver(tmp_path, repository.url).fetch([repository.add("g:a:1", b"content")])


def test_a_damaged_cache_entry_is_fetched_again(repository: Repository, tmp_path: Path) -> None:
    artifact = repository.add("g:a:1", b"content")
    resolver = _resolver(tmp_path, repository.url)
    resolver.fetch([artifact])
    resolver.location(artifact).write_bytes(b"cut")
    assert resolver.fetch([artifact])[0].read_bytes() == b"content"


def test_repositories_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLRACE_MAVEN_URL", raising=False)
    assert repository_urls() == (MAVEN_CENTRAL,)
    monkeypatch.setenv("MILLRACE_MAVEN_URL", " http://one/maven/ ,,http://two")
    assert repository_urls() == ("http://one/maven", "http://two")
    monkeypatch.setenv("MILLRACE_MAVEN_URL", " , ")
    assert repository_urls() == (MAVEN_CENTRAL,)
