"""Brings into the cache what is no Python package: pinned files, archives, and a Java runtime."""
