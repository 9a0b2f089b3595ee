"""How it all runs: the rootless local stack and the compose files."""
