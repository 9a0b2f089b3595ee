"""The console: pages that every worker serves at ``/console``, and the REST calls that only they have a use for."""
