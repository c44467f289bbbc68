#!/usr/bin/env python3
"""Edit a patch series as commits; see --help and overlaykit/patch_series.py."""

from overlaykit.cli import launch


if __name__ == "__main__":
    launch("overlaykit.patch_series")
