"""``millrace demo``: the main job on the local stack, from nothing to a verified result."""

from compose.demo.run import run_demo

__all__ = ["run_demo"]
