"""The example packages have tests of their own, which need the package installed (tests/integration/plugins runs them)."""

collect_ignore_glob = ["*/tests/*"]
