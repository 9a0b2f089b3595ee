"""Where the local stack keeps its things: a cache that can be fetched again, and state that belongs to running services."""

import os
from pathlib import Path


def _xdg_folder(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable)
    return Path(value) if value else Path.home() / fallback


def cache_dir() -> Path:
    """Folder of downloads: `MILLRACE_CACHE`, else `millrace` in the user's cache folder. It may not exist yet."""
    value = os.environ.get("MILLRACE_CACHE")
    return Path(value) if value else _xdg_folder("XDG_CACHE_HOME", ".cache") / "millrace"


def home_dir() -> Path:
    """Folder of the stack's state: `MILLRACE_HOME`, else `millrace` in the user's state folder. It may not exist yet."""
    value = os.environ.get("MILLRACE_HOME")
    return Path(value) if value else _xdg_folder("XDG_STATE_HOME", ".local/state") / "millrace"
