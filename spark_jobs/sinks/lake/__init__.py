"""Shared by the sinks for table formats of data lakes: options, tasks that write Parquet files, and commits of them."""
