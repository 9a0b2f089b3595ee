"""The placement of units on workers, and the reconciliation of a worker with it."""
