"""The command line: ``millrace COMMAND``."""
import sys


def main() -> int:
    """Run one command; returns the exit code."""
    return 0


if __name__ == "__main__":
    sys.exit(main())
