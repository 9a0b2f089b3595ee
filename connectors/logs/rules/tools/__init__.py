"""Tools for a rule set that is not in use yet: previews, trials, proposals."""
