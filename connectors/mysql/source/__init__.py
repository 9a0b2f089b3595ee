"""The server: connections, login, and the raw events of its binlog."""
