"""The manifest: well formed, complete, and the same versions wherever one is named."""

import configparser
import re
from pathlib import Path

import pytest

from worker.fetch import pin
from worker.fetch.artifacts import MANIFEST, Artifact, load_manifest
from worker.fetch.errors import StackError


def test_every_file_is_pinned_by_checksum_and_belongs_to_a_set() -> None:
    manifest = load_manifest()
    for artifact in manifest.artifacts:
        assert re.fullmatch(r"[0-9a-f]{64}", artifact.sha256), artifact
        assert artifact.size > 0
        assert artifact.of_npm or artifact.sets <= set(manifest.roots), artifact
    assert len({artifact.sha256 for artifact in manifest.artifacts}) == len(manifest.artifacts)


def test_every_root_is_pinned_in_its_set() -> None:
    manifest = load_manifest()
    for name, roots in manifest.roots.items():
        assert {root.rstrip(pin.ALONE) for root in roots} <= {
            artifact.coordinates for artifact in manifest.members(name)
        }


def test_a_version_is_named_once_and_followed_everywhere() -> None:
    manifest = load_manifest()
    kafka = manifest.versions["kafka"]
    assert manifest.images["kafka"].endswith(f":{kafka}")
    # Spark brings the Kafka client that it was built with.
    kafka_artifacts = {
        tuple(a.coordinates.split(":")[1:])
        for a in manifest.artifacts
        if a.coordinates.startswith("org.apache.kafka:") and a.sets & {"kafka", "connect"}
    }
    assert len(kafka_artifacts) > 20
    # The one artifact that Kafka did not release with every version.
    assert {artifact for artifact, version in kafka_artifacts if version != kafka} <= {"connect-test-plugins"}
    assert manifest.roots["registry"][0].split(":")[2] == manifest.versions["registry"]
    spark = manifest.roots["spark"][0].removesuffix(pin.ALONE).split(":")[2]
    setup = configparser.ConfigParser()
    setup.read(MANIFEST.parents[2] / "setup.cfg", encoding="utf-8")
    assert f"pyspark>={spark},<" in setup["options.extras_require"]["spark"]


@pytest.mark.parametrize(
    ("coordinates", "path"),
    [
        ("htm@3.1.1", "htm/-/htm-3.1.1.tgz"),
        ("@dagrejs/dagre@3.1.3", "@dagrejs/dagre/-/dagre-3.1.3.tgz"),
    ],
)
def test_packages_of_npm_have_their_own_paths(coordinates: str, path: str) -> None:
    artifact = Artifact(coordinates, "", 0, frozenset())
    assert (artifact.of_npm, artifact.path) == (True, path)


@pytest.mark.parametrize(
    ("coordinates", "path"),
    [
        ("org.slf4j:slf4j-api:1.7.36", "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar"),
        ("a.b:c:1:all@tar.gz", "a/b/c/1/c-1-all.tar.gz"),
        ("a.b:c:1:linux", "a/b/c/1/c-1-linux.jar"),
        ("a:c_2.13:1.0-rc.1@zip", "a/c_2.13/1.0-rc.1/c_2.13-1.0-rc.1.zip"),
    ],
)
def test_coordinates_and_paths_convert_both_ways(coordinates: str, path: str) -> None:
    artifact = Artifact(coordinates, "0" * 64, 1, frozenset({"x"}))
    assert artifact.path == path
    assert artifact.filename == path.rpartition("/")[2]
    assert pin.to_coordinates(Path(path)) == coordinates


def test_the_pinned_section_is_what_pin_writes(tmp_path: Path) -> None:
    """Whoever edits the section by hand breaks the next `pin` run: it must be sorted and in pin's own format."""
    _, _, section = MANIFEST.read_text(encoding="utf-8").partition("[artifacts]\n")
    lines = section.splitlines()
    assert lines == sorted(lines, key=lambda line: line.split('"')[1])
    file = tmp_path / "c-1.jar"
    file.write_bytes(b"jar")
    written = pin.render_section({"a.b:c:1": (file, ["kafka", "connect"])})
    assert (
        re.sub(r"[0-9a-f]{64}", "H", written) == '"a.b:c:1" = { size = 3, sha256 = "H", in = ["kafka", "connect"] }\n'
    )
    assert all(
        re.fullmatch(r'"[^"]+" = \{ size = \d+, sha256 = "[0-9a-f]{64}", in = \[[^]]+\] \}', line) for line in lines
    )


def test_pom_takes_an_application_without_its_dependencies() -> None:
    assert "exclusion" not in pin.render_pom(["g:a:1"])
    whole = pin.render_pom(["g:a:1:all@tar.gz"])
    assert "<classifier>all</classifier><type>tar.gz</type>" in whole
    assert "<exclusion>" in whole
    alone = pin.render_pom(["g:a:1!"])
    assert "<version>1</version>" in alone
    assert "<exclusion>" in alone


def test_an_unknown_set_names_the_known_ones() -> None:
    with pytest.raises(StackError, match=r"no set 'kafak'; it has: .*kafka"):
        load_manifest().members("kafak")


@pytest.mark.parametrize("content", ["versions = [", "[versions]\n", "[versions]\n[java]\njdk4py = 3\n"])
def test_a_damaged_manifest_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "artifacts.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(StackError, match=r"artifacts\.toml is no manifest"):
        load_manifest(path)
