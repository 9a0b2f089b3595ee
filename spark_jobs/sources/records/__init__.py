"""Records in JSON, and the search for what is new in them."""
