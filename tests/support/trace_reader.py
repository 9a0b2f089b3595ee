"""The part of a connector's or task's trace that Redpanda Console shows (from its backend, compared with a running one)."""


def read_like_redpanda_console(trace: str) -> str:
    """The text of an error on its pages: of the first cause, otherwise of the first line that is not a place in a program."""
    lines = [line.strip("\t") for line in trace.split("\n")]
    lines = [line for line in lines if not line.endswith(("exception", ")"))]
    chosen = next((line for line in lines if line.lower().startswith("caused by")), lines[0] if lines else "")
    return chosen.removeprefix("Caused by:").partition(":")[2].strip()
