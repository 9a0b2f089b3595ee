"""``millrace soak``: the demo's pipeline under a steady load and random faults, with a comparison at the end."""

from compose.soak.run import run_soak

__all__ = ["run_soak"]
