"""The first version."""


def old() -> str:
    """Only this version has it."""
    return "clash 1"
