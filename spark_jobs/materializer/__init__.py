"""The materializer: partition updates and change events in, complete row images out."""
