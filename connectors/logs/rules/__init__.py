"""Rules that make rows of log lines: their form, their check, their compiled code and their preview. Pure, no I/O."""
