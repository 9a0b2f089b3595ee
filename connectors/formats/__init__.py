"""Wire forms of change events that several connectors write: UMS and the partition update."""
