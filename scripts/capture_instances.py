#!/usr/bin/env python3
"""Capture test/instances from real models; see --help. See overlaykit/capture_instances.py."""

from overlaykit.cli import launch


if __name__ == "__main__":
    launch("overlaykit.capture_instances")
