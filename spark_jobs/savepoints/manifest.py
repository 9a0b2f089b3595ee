"""The manifest of a savepoint: what it is of, the checkpoint's files, and what its state consists of. Pure but for the folder.

A savepoint is a folder. Its state is written first, into a folder with a random name; the manifest, which names it, last: a
folder without a complete manifest is no savepoint.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from connectors.errors import Fatal
from spark_jobs.savepoints.steps import SavedStep  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from spark_jobs.spark.checkpoint import Folder

#: The layout of a savepoint without states of steps, and of one with them: a version that does not know these must refuse it.
FORMAT: Final = 1
FORMAT_WITH_STEPS: Final = 2
MANIFEST_FILE: Final = "savepoint.json"
_TRY: Final = "make another savepoint with `millrace job savepoint FILE --to DIR`"


class SavepointManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a savepoint.

    Attributes:
        format: the layout.
        id: random; marks state that was started from it.
        name: what its maker called it.
        job: whose it is.
        created_ms: when it was made, ms since 1970.
        versions: of Millrace and Spark.
        sink: the job's sink, or ``materializer``.
        source_type, source_format: the job's.
        inputs: the topics that it reads, as configured; of files or a history the path.
        batch: the last batch done.
        checkpoint: the checkpoint's files that tell the position, with their text.
        state: what the sink has saved of its state; None: nothing.
        steps: the states of the job's steps that keep one, by name.
    """

    format: int = FORMAT
    id: str
    name: str
    job: str
    created_ms: int
    versions: dict[str, str]
    sink: str
    source_type: str
    source_format: str | None
    inputs: list[str]
    batch: int
    checkpoint: dict[str, str]
    state: dict[str, Any] | None = None
    steps: dict[str, SavedStep] = {}


class _Sealed(msgspec.Struct):
    sha256: str
    savepoint: msgspec.Raw


class _Versioned(msgspec.Struct):
    format: int


def encode_manifest(manifest: SavepointManifest) -> str:
    """The text of the file: the manifest and its checksum."""
    body = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(hashlib.sha256(body).hexdigest(), msgspec.Raw(body))).decode()


def decode_manifest(manifest_json: str, location: str) -> SavepointManifest:
    """The inverse of ``encode_manifest``.

    Raises:
        Fatal: it is incomplete, damaged, or of another layout.
    """
    try:
        sealed = msgspec.json.decode(manifest_json, type=_Sealed)
    except msgspec.MsgspecError as error:
        raise Fatal(f"the savepoint {location} is incomplete or damaged: {MANIFEST_FILE}: {error}; {_TRY}") from None
    body = bytes(sealed.savepoint)
    if hashlib.sha256(body).hexdigest() != sealed.sha256:
        raise Fatal(f"the savepoint {location} is damaged: the checksum of {MANIFEST_FILE} does not match; {_TRY}")
    try:
        layout = msgspec.json.decode(body, type=_Versioned).format
        if layout not in (FORMAT, FORMAT_WITH_STEPS):
            raise Fatal(
                f"the savepoint {location} has layout {layout}, and this version of Millrace reads layouts {FORMAT} and "
                f"{FORMAT_WITH_STEPS} only: "
                f"start the job from it with the version that made it, and {_TRY} of this version"
            )
        return msgspec.json.decode(body, type=SavepointManifest)
    except msgspec.MsgspecError as error:
        raise Fatal(f"the savepoint {location} can't be read: {MANIFEST_FILE}: {error}; {_TRY}") from None


def read_manifest(folder: Folder, location: str) -> SavepointManifest:
    """The manifest of the savepoint in ``folder``. Blocks.

    Raises:
        Fatal: it does not exist, or it can't be used.
    """
    manifest_json = folder.read(MANIFEST_FILE)
    if manifest_json is None:
        raise Fatal(
            f"there is no savepoint in {location}: it has no {MANIFEST_FILE}. The file is written last, so a savepoint that "
            "was interrupted lacks it; check the path, or make the savepoint again"
        )
    return decode_manifest(manifest_json, location)


def find_refusals(
    manifest: SavepointManifest,
    *,
    sink: str,
    source_type: str,
    source_format: str | None,
    inputs: list[str],
    spark_version: str,
) -> list[str]:
    """Why a job can't start from a savepoint, a sentence each; empty: it can."""
    reasons = []
    if manifest.sink != sink:
        reasons.append(f"it is of a job with the sink {manifest.sink}, and this one has {sink}")
    if manifest.source_type != source_type:
        reasons.append(f"its input is {manifest.source_type}, and source.type is {source_type}")
    if manifest.source_format != source_format:
        reasons.append(f"its input is {manifest.source_format}, and source.format is {source_format}")
    if sorted(manifest.inputs) != sorted(inputs):
        reasons.append(f"it holds the position in {', '.join(manifest.inputs)}, and the job reads {', '.join(inputs)}")
    written_by, here = manifest.versions.get("spark", ""), spark_version
    if written_by.split(".")[:2] != here.split(".")[:2]:
        reasons.append(f"its checkpoint was written by Spark {written_by}, and this is Spark {here}")
    return reasons
