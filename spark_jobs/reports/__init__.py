"""Reports of a job: events and retries."""
