# Owner(s): ["module: functorch"]
"""The benchmark's command line: what it writes, and how it takes a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch.testing._internal.common_utils import run_tests, TestCase


HOME = Path(__file__).resolve().parents[2]
START = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from overlaykit import benchmark, cli
cli.run(benchmark.main)
"""
SOLVERS = {"dp", "hirschberg-shipped", "ilp", "greedy", "hirschberg", "exact"}


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, str(HOME / "scripts"), *arguments],
        capture_output=True,
        text=True,
    )


class TestBenchmark(TestCase):
    def test_real_on_one_instance(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = benchmark(
                "real",
                "--quick",
                "--instance=mlp-12",
                "--repeats=1",
                "--output",
                folder,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([p.name for p in Path(folder).iterdir()], ["real.json"])
            found: dict[str, Any] = json.loads((Path(folder) / "real.json").read_text())
        self.assertEqual(found["suite"], "real")
        for key in ("cpu", "cores", "torch", "scipy", "ortools", "python"):
            self.assertIn(key, found["environment"])
        self.assertNotIn(str(HOME), json.dumps(found))
        self.assertEqual([cell["budget"] for cell in found["cells"]], found["budgets"])
        for cell in found["cells"]:
            self.assertEqual(cell["instance"], "mlp-12")
            self.assertLessEqual(SOLVERS, set(cell["plans"]))
            # Proven by an independent solver, and stored beside the instance.
            exact = cell["plans"]["exact"]
            self.assertEqual(exact["kept_runtime"], cell["optimum"])
            self.assertLessEqual(exact["bytes"], cell["capacity"])
            self.assertGreater(exact["seconds"], 0)
            self.assertEqual(exact["times_exact"], 1)
        for name in SOLVERS:
            self.assertEqual(found["summary"][name]["cells"], len(found["cells"]))
        for target in found["targets"]:
            self.assertLessEqual({"name", "goal", "reached", "met"}, set(target))

    def test_one_line_for_a_mistake(self) -> None:
        for arguments, message in (
            (("fast",), "suite: 'fast' is not one of real, random, paper, hard"),
            (("hard", "--huge"), "--huge is for the suite paper, which is not named"),
        ):
            done = benchmark(*arguments)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, f"error: {message}\n")


if __name__ == "__main__":
    run_tests()
