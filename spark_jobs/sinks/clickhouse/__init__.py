"""The ClickHouse sink: rows in Arrow over HTTP, into tables whose engine keeps the newest row of each key."""
