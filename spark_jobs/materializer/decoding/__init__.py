"""From messages to changes of rows."""
