"""Where changes go; one folder per kind of target."""
