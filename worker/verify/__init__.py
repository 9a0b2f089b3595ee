"""``millrace verify``: compares tables with their topics and targets."""
