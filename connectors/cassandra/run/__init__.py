"""One run of a task: from the connection to the cluster until something fails."""
