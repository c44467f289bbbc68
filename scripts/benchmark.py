#!/usr/bin/env python3
"""Measure the solvers beside their peers; see --help and overlaykit/benchmark.py."""

from overlaykit.cli import launch


if __name__ == "__main__":
    launch("overlaykit.benchmark")
