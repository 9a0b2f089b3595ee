"""The parts of a run of a job: its batches, its retries, its progress."""
