"""The state that a step keeps from batch to batch."""
