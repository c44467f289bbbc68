# Owner(s): ["module: functorch"]
"""Lint, format and types, as tests: a contributor sees them where the other failures are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from torch.testing._internal.common_utils import run_tests, TestCase


HOME = Path(__file__).resolve().parents[1]


class TestLint(TestCase):
    def check(self, *command: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=HOME, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, "\n" + done.stdout + done.stderr)

    def test_ruff_check(self) -> None:
        self.check("ruff", "check", ".")

    def test_ruff_format(self) -> None:
        self.check("ruff", "format", "--check", ".")

    def test_mypy_strict(self) -> None:
        self.check("mypy")


if __name__ == "__main__":
    run_tests()
