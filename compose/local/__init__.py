"""The local stack: real servers as plain processes, without root and without a container engine."""
