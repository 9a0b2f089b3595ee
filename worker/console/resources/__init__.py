"""REST calls that only the console's pages have a use for."""
