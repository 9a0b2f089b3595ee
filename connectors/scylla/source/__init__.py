"""The cluster: generations and streams, and the pages of their logs."""
