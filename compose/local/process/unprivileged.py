"""How a server that refuses to run as root is started by root."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from worker.fetch.errors import Unavailable

#: User and group `nobody`.
NOBODY: Final = 65534


def drop_privileges(name: str, probe: Sequence[str]) -> tuple[list[str], bool]:
    """Return the words to put before a command of a server that refuses to run as root, and whether its files go to `nobody`.

    As root the commands run as the user `nobody` that keeps one capability, to reach folders of root (its cache, a test's
    folder); where a container does not allow that, in a user namespace in which root has another number. Both replace
    themselves by the command, so that the process number is the server's. Blocks: tries each with `probe`.

    Args:
        name: The server's, for messages.
        probe: A command of it that ends at once.

    Raises:
        Unavailable: Neither works, or the program lacks a library of this system.
    """
    as_nobody = [
        "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--securebits=+no_setuid_fixup",
        "--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--",
    ]  # fmt: skip
    in_namespace = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
    complaints: list[str] = []
    for prefix in [as_nobody, in_namespace] if os.geteuid() == 0 else [[]]:
        if prefix and not shutil.which(prefix[0]):
            complaints.append(f"{prefix[0]} is not on the PATH")
            continue
        result = subprocess.run([*prefix, *probe], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return prefix, prefix is as_nobody
        complaints.append(
            f"'{' '.join([*prefix[:1], probe[0]])}' failed: {(result.stderr or result.stdout).strip()[-400:]}"
        )
    raise Unavailable(
        f"{name} cannot run here: "
        + "; ".join(complaints)
        + ". It refuses to run as root: be another user, or install setpriv (util-linux); missing libraries must be installed"
    )
