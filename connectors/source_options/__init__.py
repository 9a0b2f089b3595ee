"""Options that all sources share."""
