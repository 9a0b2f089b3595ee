"""What setup.cfg can't say: a wheel gets the libraries of the console's pages, which are not in the repository."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

_ROOT = Path(__file__).resolve().parent


class _Build(build_py):
    def run(self) -> None:
        """Build as usual, then fetch and add the libraries; an editable installation has them in the cache instead."""
        super().run()
        if not self.editable_mode:
            sys.path.insert(0, str(_ROOT))
            from worker.console.libraries import pack_libraries

            pack_libraries(Path(self.build_lib) / "worker" / "console" / "libraries")


setup(cmdclass={"build_py": _Build})
