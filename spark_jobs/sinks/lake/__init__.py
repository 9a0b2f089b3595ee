"""What the sinks for table formats of data lakes share: options, tasks that write Parquet files, and commits of them."""
