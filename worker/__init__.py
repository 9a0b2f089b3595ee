"""One node of a Millrace cluster: the control process and its task hosts."""

__version__ = "0.1.0"
