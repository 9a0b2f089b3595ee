"""Shared parts of sinks that write rows from Python tasks: options, templates, the task that writes, and its counts."""
