"""The task host: the child process in which tasks run."""
