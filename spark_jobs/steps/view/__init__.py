"""``type=view``: a query over changing tables, whose changes are the output."""
