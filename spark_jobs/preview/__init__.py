"""Previews of flows: some rows through every step, in a Spark application, without a trace outside of it."""
