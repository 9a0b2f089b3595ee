"""Brings servers to this machine: pinned files, packages and a Java runtime."""
