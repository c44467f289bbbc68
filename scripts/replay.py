#!/usr/bin/env python3
"""Solve the knapsacks of trace files again; see --help and overlaykit/replay.py."""

from overlaykit.cli import launch


if __name__ == "__main__":
    launch("overlaykit.replay")
