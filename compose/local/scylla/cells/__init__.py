"""Values, statements and log rows of the emulation. Pure."""
