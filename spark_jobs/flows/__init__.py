"""Flows: several in one application, their plans, edits and sinks."""
