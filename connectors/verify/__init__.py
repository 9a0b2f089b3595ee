"""Comparing what a source holds with what a topic says: sums and digests of rows, and the merge of cells with write times."""
