#!/usr/bin/env python3
"""Try the solvers on random and hostile instances; see --help and overlaykit/fuzz.py."""

from overlaykit.cli import launch


if __name__ == "__main__":
    launch("overlaykit.fuzz")
