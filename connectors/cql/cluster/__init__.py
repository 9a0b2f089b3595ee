"""Sessions of the driver: connections, questions, failures and limits."""
