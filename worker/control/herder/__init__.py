"""The cluster as REST sees it."""
