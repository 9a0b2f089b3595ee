"""Ends a service when the program that started it is gone, however that program ended.

Started by `service.py` as `python -I -S guard.py PID MARK`, in a session of its own, with a pipe as its standard input. The
other end of the pipe is held by the program that started the service: a byte on it means that the service was stopped in
good order, its end means that the program died.

`PR_SET_PDEATHSIG` would need no process, but it fires when the *thread* that started the service ends, and knows Linux only.
"""

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Wait for one byte or the end of standard input, then act."""
    if os.read(0, 1):
        return
    # Imported only now: a guard should cost nothing while all is well.
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from compose.local.process.identity import signal_group

    signal_group(int(sys.argv[1]), sys.argv[2], signal.SIGKILL)


if __name__ == "__main__":
    main()
