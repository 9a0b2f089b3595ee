"""Files on any Hadoop file system."""
