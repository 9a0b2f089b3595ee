"""Reference models and builders that several test modules share."""
