"""The merge engine: updates in, state and events out."""
