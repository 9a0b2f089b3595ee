"""Source connector for logs: lines of files or topics become rows of tables, by rules."""
