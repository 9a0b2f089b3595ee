"""A bucket's state: its store, its changelog, savepoints and rebuilds."""
