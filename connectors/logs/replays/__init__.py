"""Lines that are read again, and given to the rules once more."""
