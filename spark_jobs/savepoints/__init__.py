"""Savepoints: a job's position and state in a folder, from which it starts somewhere else. See docs/jobs/savepoints.md."""

from typing import Final

#: The reason with which a job ends that was asked to stop after a savepoint.
SAVEPOINT: Final = "savepoint"
