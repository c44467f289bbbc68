# Owner(s): ["module: functorch"]
"""Tests of scripts/setup: its errors, what a cut-short run leaves, and that it is done only once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock, skipUnless

from torch.testing._internal.common_utils import run_tests, TestCase


sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from overlaykit import overlay, pins, pristine, setup, target
from overlaykit.cli import UserError


HOME = Path(__file__).resolve().parents[1]


def run_setup(*arguments: str, **variables: str) -> Any:
    return subprocess.run(
        [HOME / "scripts" / "setup", *arguments],
        env={**os.environ, "PYTHON": sys.executable, **variables},
        capture_output=True,
        text=True,
    )


class TestErrors(TestCase):
    def assert_error(self, done: Any, message: str) -> None:
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, rf"\Aerror: .*{message}.*\n\Z")

    def test_unsupported_version_lists_the_supported(self) -> None:
        done = run_setup("--torch-version", "1.0")
        self.assert_error(
            done, f"1.0 is not supported; supported: {pins.load().bases[0].version}"
        )

    def test_old_python(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            old = Path(folder, "python3.6")
            old.write_text("#!/bin/sh\nexit 1\n")
            old.chmod(0o755)
            for python in (old, Path(folder, "none")):
                done = run_setup(PYTHON=str(python))
                self.assert_error(done, "Python 3.10 or newer is needed")

    def test_no_git(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "dirname").symlink_to(str(shutil.which("dirname")))
            self.assert_error(run_setup(PATH=folder), "git is needed")

    def test_no_ensurepip(self) -> None:
        with (
            mock.patch.object(setup, "PYTHON", Path("/nowhere")),
            mock.patch("importlib.util.find_spec", return_value=None),
            self.assertRaisesRegex(UserError, "lacks venv or ensurepip"),
        ):
            setup.make_venv()

    def test_help(self) -> None:
        done = run_setup("--help")
        self.assertEqual(done.returncode, 0)
        for word in ("--torch-version", "--index-url", "TORCH_INDEX_URL"):
            self.assertIn(word, done.stdout)


class TestSteps(TestCase):
    """Setup with its slow steps replaced: pip "installs" the few files that patches touch."""

    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.venv = Path(folder.name, ".venv")
        self.site = self.venv / "lib" / "python3.11" / "site-packages"
        self.done: list[str] = []
        self.fail_at = "nothing"
        for name, value in (
            ("VENV", self.venv),
            ("PYTHON", self.venv / "bin" / "python"),
            ("STAMP", self.venv / "stamp.json"),
            ("step", self.step),
        ):
            patch = mock.patch.object(setup, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def step(self, title: str, *command: Any) -> None:
        self.done.append(title.split()[0])
        if title.startswith(self.fail_at):
            raise KeyboardInterrupt
        if title.startswith("making"):
            setup.PYTHON.parent.mkdir(parents=True, exist_ok=True)
            setup.PYTHON.unlink(missing_ok=True)
            setup.PYTHON.symlink_to(sys.executable)
        if title.startswith("installing torch"):
            for path in {*pins.load().primary.touched(), target.LANDMARK.as_posix()}:
                (self.site / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(pristine.source(path), self.site / path)

    def run_main(self, *arguments: str) -> list[str]:
        self.done.clear()
        with mock.patch.object(sys, "argv", ["setup", "--quiet", *arguments]):
            self.assertEqual(setup.main(), 0)
        return self.done

    def test_cut_short_anywhere_then_gone_on_with(self) -> None:
        for fail_at in ("making", "installing torch", "installing the", "importing"):
            shutil.rmtree(self.venv, ignore_errors=True)
            self.fail_at = fail_at
            with self.assertRaises(KeyboardInterrupt):
                self.run_main()
            self.assertFalse(setup.STAMP.exists())
            self.fail_at = "nothing"
            self.assertIn("installing", self.run_main())
            self.assertTrue(setup.is_applied(pins.load()))
            self.assertEqual(self.run_main(), [])

    def test_only_what_is_missing_is_done(self) -> None:
        self.run_main()
        overlay.revert(self.site)
        self.assertEqual(self.run_main(), ["importing"])
        self.assertTrue(setup.is_applied(pins.load()))
        with mock.patch.object(setup, "requirements", return_value=["pytest==0"]):
            self.assertEqual(self.run_main(), ["installing"] * 2 + ["importing"])
        shutil.rmtree(self.site)
        self.assertEqual(self.run_main(), ["installing"] * 2 + ["importing"])

    def test_torch_comes_from_the_named_index_and_nothing_else_does(self) -> None:
        with mock.patch.object(setup, "step") as step:
            setup.install("1.2", "https://example.invalid/cpu")
        first, second = (list(map(str, call.args)) for call in step.call_args_list)
        self.assertEqual(
            first[-3:], ["--index-url", "https://example.invalid/cpu", "torch==1.2"]
        )
        self.assertNotIn("--index-url", second)
        self.assertIn("torch==1.2", second)

    @skipUnless(Path(sys.prefix) == HOME / ".venv", "runs in .venv only")
    def test_second_run_is_quick(self) -> None:
        start = time.monotonic()
        done = run_setup()
        self.assertRegex(done.stdout, r"\Anothing to do: .*\n\Z")
        self.assertLess(time.monotonic() - start, 3)


if __name__ == "__main__":
    run_tests()
