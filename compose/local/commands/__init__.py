"""The detached stack, and its commands."""
