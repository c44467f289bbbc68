#!/usr/bin/env python3
"""Write the tables of the README from scripts/results; see overlaykit/readme.py."""

from overlaykit.cli import launch


if __name__ == "__main__":
    launch("overlaykit.readme")
