"""One run of a task: from the connection to the source until something fails."""
