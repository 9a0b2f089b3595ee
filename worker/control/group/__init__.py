"""The group of the workers: who belongs to it, and what is watched in it."""
