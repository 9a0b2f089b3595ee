"""The cluster's shared state, as records of its topics."""
