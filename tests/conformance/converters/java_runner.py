"""Runs the Java side of the vectors: compiles it once, then asks it line by line."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "java"


@dataclass(frozen=True, slots=True)
class JavaConverters:
    """A JDK or runtime with the compiled program on its class path."""

    home: Path
    classpath: str
    program: str = "ConverterVectors"

    @classmethod
    def compiled(
        cls,
        home: Path,
        classpath: str,
        folder: Path,
        *,
        release: int,
        more: str = "",
        program: str = "ConverterVectors",
    ) -> JavaConverters:
        """Compile ``java``, and with it the sources in the folder ``more`` next to it."""
        beside = sorted((SOURCES.parent / more).glob("*.java")) if more else []
        subprocess.run(
            [
                home / "bin" / "javac",
                "--release",
                str(release),
                "-nowarn",
                "-cp",
                classpath,
                "-d",
                folder,
                *sorted(SOURCES.glob("*.java")),
                *beside,
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        return cls(home, f"{folder}{os.pathsep}{classpath}", program)

    def ask(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        text = "".join(json.dumps(request) + "\n" for request in requests)
        done = subprocess.run(
            [
                self.home / "bin" / "java",
                "-Duser.timezone=UTC",
                "-XX:TieredStopAtLevel=1",
                "-Xmx256m",
                "-cp",
                self.classpath,
                self.program,
            ],
            input=text,
            check=True,
            capture_output=True,
            encoding="utf-8",
        )
        return [json.loads(line) for line in done.stdout.rstrip("\n").split("\n")]
