"""Full contents of tables, read in chunks beside the stream."""
