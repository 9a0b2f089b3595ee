"""``sink.type=lines``: appends a line for each record's value to one file."""
