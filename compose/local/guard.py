"""Ends a service when the program that started it is gone, however that program ended.

Started by `service.py` as `python -I -S guard.py PID`, in a session of its own, with a pipe as its standard input. The other
end of the pipe is held by the program that started the service: a line on it means the service was stopped in good
order, its end means that the program died. Nothing is imported that costs start time.

`PR_SET_PDEATHSIG` would need no process, but it fires when the *thread* that started the service ends, and knows Linux only.
"""

import os
import signal
import sys


def main() -> None:
    """Wait for one line or the end of standard input, then act."""
    pid = int(sys.argv[1])
    if not os.read(0, 1):
        # The service was our starter's child and nobody else collects it, so its number cannot have a new owner
        # before this moment; init collects it only now.
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


if __name__ == "__main__":
    main()
