"""The second version."""


def new() -> str:
    """Only this version has it."""
    return "clash 2"
