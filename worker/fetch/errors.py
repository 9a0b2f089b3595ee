"""The errors of the local stack and of downloads, by what the caller can do about them."""


class StackError(Exception):
    """A service of the local stack cannot do what was asked; the message says what, where, and how to fix it."""


class Unavailable(StackError):
    """A service cannot be had on this machine at all (nothing is broken); tests skip with the message as their reason."""
