# Owner(s): ["module: functorch"]
"""Tests of scripts/apply_overlay.py: its states, its safety when killed, its targets.

Most run on a stand-in for torch of a few lines and a package of two patches made for it, so that
every byte expected is written down here; the last class uses the real pins and patches.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import os
import py_compile
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from torch.testing._internal.common_utils import run_tests, TestCase


sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from overlaykit import overlay, pins, pristine, target
from overlaykit.cli import UserError
from overlaykit.overlay import STATE, Status


HOME = Path(__file__).resolve().parents[2]
SCRIPTS = HOME / "scripts"

PARTITIONERS = "torch/_functorch/partitioners.py"
KNAPSACK = "torch/_functorch/_activation_checkpointing/knapsack.py"
ADDED = "torch/_functorch/_activation_checkpointing/knapsack_new.py"
DEEPER = "torch/_functorch/extra/deeper/more.py"
UNTOUCHED = "torch/__init__.py"

# What PyTorch ships, and what versions 1 and 2 of the package make of it.
SHIPPED = {
    PARTITIONERS: "first = 1\nsecond = 2\nthird = 3\n",
    KNAPSACK: "answer = 'old'\n",
    UNTOUCHED: "",
}
FIRST = {
    PARTITIONERS: "first = 1\nsecond = 22\nthird = 33\n",
    KNAPSACK: "answer = 'new'\n",
    ADDED: "added = 1\n",
    DEEPER: "deeper = 1\n",
    UNTOUCHED: "",
}
SECOND = {
    PARTITIONERS: "first = 11\nsecond = 2\nthird = 3\n",
    KNAPSACK: SHIPPED[KNAPSACK],
    ADDED: "added = 2\n",
    UNTOUCHED: "",
}


def write_files(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def read_files(root: Path) -> dict[str, str]:
    """Every file below torch/ but the state and bytecode, as text."""
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in root.glob("torch/**/*")
        if path.is_file()
        and STATE.name not in path.parts
        and "__pycache__" not in path.parts
    }


def diff(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(True), new.splitlines(True), f"a/{path}", f"b/{path}", n=1
    )
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)


def make_package(home: Path, goal: dict[str, str]) -> pins.Package:
    """Write a package that turns SHIPPED into `goal`, one patch for each changed line."""
    patches = []
    for path in (PARTITIONERS, KNAPSACK):
        text = SHIPPED[path].splitlines(True)
        for index, line in enumerate(goal[path].splitlines(True)):
            if text[index] != line:
                old = "".join(text)
                text[index] = line
                patches.append(diff(path, old, "".join(text)))
    # A hunk outside torch/ is for checkouts' tests and must be left out.
    patches[0] += diff("test/test_x.py", "a\n", "b\n")
    series = home / "patches" / "series"
    series.mkdir(parents=True)
    for number, text in enumerate(patches, 1):
        (series / f"{number:04}-change.patch").write_text(text)
    digests = "".join(
        f'"{path}" = "{hashlib.sha256(SHIPPED[path].encode()).hexdigest()}"\n'
        for path in (PARTITIONERS, KNAPSACK)
    )
    (home / "patches" / "pins.toml").write_text(
        'primary = "1.0"\n[[base]]\nversion = "1.0"\ntag = "v1.0"\ncommit = "c"\n'
        f'series = "series"\n[base.sha256]\n{digests}'
    )
    new = {path: text for path, text in goal.items() if path not in SHIPPED}
    write_files(home / "torch_overlay", new)
    shutil.copytree(
        SCRIPTS, home / "scripts", ignore=shutil.ignore_patterns("__pycache__")
    )
    return pins.load(home)


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    with mock.patch.dict(os.environ, variables):
        yield


@contextlib.contextmanager
def without_root() -> Iterator[None]:
    """Give up root's right to write anywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def remember(patched: Any) -> Any:
    """Keep the results of running git, which sees the same files every time."""
    known: dict[Any, dict[str, bytes]] = {}

    def remembering(shipped: Any, patches: Any) -> dict[str, bytes]:
        if patches not in known:
            known[patches] = patched(shipped, patches)
        return dict(known[patches])

    return remembering


class OverlayTestCase(TestCase):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.first = make_package(self.folder / "package1", FIRST)
        self.second = make_package(self.folder / "package2", SECOND)
        self.root = write_files(self.folder / "site-packages", SHIPPED)
        # Power cuts are not tested, and waiting for a disk takes most of the time.
        no_sync = mock.patch.object(os, "fsync")
        no_sync.start()
        self.addCleanup(no_sync.stop)

    def status(self, root: Path, package: pins.Package) -> Status:
        return overlay.inspect(root, package).status

    def assert_pristine(self, root: Path) -> None:
        self.assertEqual(read_files(root), SHIPPED)
        self.assertFalse((root / STATE).exists())
        self.assertFalse((root / DEEPER).parents[1].exists())

    def cli(self, *arguments: Any, package: str = "package1") -> Any:
        script = self.folder / package / "scripts" / "apply_overlay.py"
        return subprocess.run(
            [sys.executable, script, *arguments], capture_output=True, text=True
        )


class TestStates(OverlayTestCase):
    def test_apply_check_revert(self) -> None:
        self.assertIs(self.status(self.root, self.first), Status.PRISTINE)
        self.assertTrue(overlay.apply(self.root, self.first))
        self.assertEqual(read_files(self.root), FIRST)
        self.assertIs(self.status(self.root, self.first), Status.APPLIED)
        self.assertFalse((self.folder / "site-packages" / "test").exists())
        self.assertTrue(overlay.revert(self.root, self.first))
        self.assert_pristine(self.root)
        self.assertIs(self.status(self.root, self.first), Status.PRISTINE)

    def test_applying_or_reverting_twice_does_nothing(self) -> None:
        overlay.apply(self.root, self.first)

        def stamps() -> dict[Path, tuple[int, int]]:
            found = {path: path.stat() for path in self.root.rglob("*")}
            return {path: (s.st_ino, s.st_mtime_ns) for path, s in found.items()}

        seen = stamps()
        self.assertFalse(overlay.apply(self.root, self.first))
        self.assertEqual(stamps(), seen)
        overlay.revert(self.root, self.first)
        self.assertFalse(overlay.revert(self.root, self.first))
        self.assert_pristine(self.root)

    def test_edited_file_is_refused_and_named(self) -> None:
        (self.root / KNAPSACK).write_text("mine\n")
        before = read_files(self.root)
        with self.assertRaises(UserError) as caught:
            overlay.apply(self.root, self.first)
        message = str(caught.exception)
        for text in (SHIPPED[KNAPSACK], "mine\n"):
            self.assertIn(hashlib.sha256(text.encode()).hexdigest(), message)
        self.assertIn(f"{PARTITIONERS}: pristine", message)
        self.assertEqual(read_files(self.root), before)
        self.assertFalse((self.root / STATE).exists())

    def test_edit_after_applying_is_not_thrown_away(self) -> None:
        overlay.apply(self.root, self.first)
        (self.root / ADDED).write_text("mine\n")
        self.assertIs(self.status(self.root, self.first), Status.DRIFTED)
        for action in (overlay.apply, overlay.revert):
            with self.assertRaisesRegex(UserError, "knapsack_new.py: expected no file"):
                action(self.root, self.first)
        self.assertEqual(read_files(self.root), {**FIRST, ADDED: "mine\n"})

    def test_file_of_the_same_name_is_not_overwritten(self) -> None:
        (self.root / ADDED).write_text("theirs\n")
        with self.assertRaisesRegex(UserError, "knapsack_new.py: expected no file"):
            overlay.apply(self.root, self.first)
        self.assertEqual((self.root / ADDED).read_text(), "theirs\n")

    def test_missing_file_is_drift(self) -> None:
        (self.root / KNAPSACK).unlink()
        with self.assertRaisesRegex(UserError, "knapsack.py: expected .*found no file"):
            overlay.apply(self.root, self.first)

    def test_lost_state_is_drift(self) -> None:
        overlay.apply(self.root, self.first)
        shutil.rmtree(self.root / STATE)
        self.assertIs(self.status(self.root, self.first), Status.DRIFTED)

    def test_spoiled_copy_is_not_restored(self) -> None:
        overlay.apply(self.root, self.first)
        (self.root / STATE / "pristine" / KNAPSACK).write_text("spoiled\n")
        with self.assertRaises(UserError):
            overlay.revert(self.root, self.first)
        self.assertEqual(read_files(self.root), FIRST)

    def test_another_version_of_the_package_updates(self) -> None:
        overlay.apply(self.root, self.first)
        self.assertIs(self.status(self.root, self.second), Status.OUTDATED)
        self.assertTrue(overlay.apply(self.root, self.second))
        self.assertEqual(read_files(self.root), SECOND)
        self.assertIs(self.status(self.root, self.second), Status.APPLIED)
        self.assertTrue(overlay.apply(self.root, self.first))
        self.assertEqual(read_files(self.root), FIRST)
        overlay.revert(self.root, self.second)
        self.assert_pristine(self.root)

    def test_reinstalled_torch(self) -> None:
        for action, goal in ((overlay.apply, FIRST), (overlay.revert, SHIPPED)):
            overlay.apply(self.root, self.first)
            write_files(self.root, SHIPPED)
            self.assertIs(self.status(self.root, self.first), Status.PARTLY)
            self.assertTrue(action(self.root, self.first))
            self.assertEqual(read_files(self.root), goal)

    def test_base_is_told_by_content(self) -> None:
        home = self.folder / "package1"
        text = (home / "patches" / "pins.toml").read_text()
        entry = text[text.index("[[base]]") :]
        newer = {KNAPSACK: "answer = 'newer'\n"}
        for path, content in newer.items():
            digest = hashlib.sha256(content.encode()).hexdigest()
            entry = re.sub(f'"{path}" = .*', f'"{path}" = "{digest}"', entry)
        entry = entry.replace('"1.0"', '"2.0"').replace('"series"', '"two"')
        (home / "patches" / "pins.toml").write_text(text + entry)
        (home / "patches" / "two").mkdir()
        (home / "patches" / "two" / "0001-x.patch").write_text(
            diff(KNAPSACK, newer[KNAPSACK], "answer = 'newest'\n")
        )
        package = pins.load(home)
        overlay.apply(self.root, package)
        self.assertEqual(overlay.inspect(self.root, package).base.version, "1.0")
        # An upgrade over the applied tree: the overlay's own files and state stay.
        write_files(self.root, {**SHIPPED, **newer})
        plan = overlay.inspect(self.root, package)
        self.assertEqual((plan.base.version, plan.status), ("2.0", Status.PARTLY))
        overlay.apply(self.root, package)
        self.assertEqual(
            read_files(self.root),
            {
                **FIRST,
                PARTITIONERS: SHIPPED[PARTITIONERS],
                KNAPSACK: "answer = 'newest'\n",
            },
        )
        overlay.revert(self.root, package)
        self.assertEqual(read_files(self.root), {**SHIPPED, **newer})

    def test_patch_that_does_not_apply_changes_nothing(self) -> None:
        patch = self.folder / "package1/patches/series/0002-change.patch"
        patch.write_text(patch.read_text().replace("third", "other"))
        with self.assertRaisesRegex(UserError, "0002-change.patch does not apply"):
            overlay.apply(self.root, self.first)
        self.assert_pristine(self.root)

    def test_overlay_that_does_not_compile_changes_nothing(self) -> None:
        (self.folder / "package1/torch_overlay" / ADDED).write_text("def\n")
        with self.assertRaisesRegex(UserError, "knapsack_new.py does not compile"):
            overlay.apply(self.root, self.first)
        self.assertEqual(read_files(self.root), SHIPPED)

    def test_patch_of_an_unpinned_file_is_refused(self) -> None:
        patch = self.folder / "package1/patches/series/0009-unpinned.patch"
        patch.write_text(diff(UNTOUCHED, "a\n", "b\n"))
        with self.assertRaisesRegex(
            UserError, "0009-unpinned.patch edits torch/__init__"
        ):
            overlay.inspect(self.root, pins.load(self.folder / "package1"))


class TestInterrupted(OverlayTestCase):
    """Kill a run before each thing it does to the disk, one after the other."""

    EVENTS = frozenset(
        ["os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.chown"]
    )

    def run_and_kill(self, action: Any, root: Path, package: Any, at: int) -> bool:
        """Run in a child that is killed at its change number `at`; tell whether it was."""
        child = os.fork()
        if child == 0:
            left = at

            def hook(event: str, arguments: tuple[Any, ...]) -> None:
                nonlocal left
                writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
                if (writes or event in self.EVENTS) and "site" in str(arguments[0]):
                    left -= 1
                    if left < 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            try:
                sys.addaudithook(hook)
                action(root, package)
            finally:
                os._exit(0)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])

    def sweep(self, start: Any, action: Any, package: Any) -> set[Status]:
        """Kill `action` everywhere; check the state told, and both ways out of it."""
        seen = set()
        root, wanted = self.root, SECOND if package is self.second else FIRST
        with mock.patch.object(overlay, "_patched", remember(overlay._patched)):
            for at in range(1000):
                for way_out in (overlay.apply, overlay.revert):
                    start(root, self.first)
                    old = read_files(root)
                    killed = self.run_and_kill(action, root, package, at)
                    files = read_files(root)
                    new = SHIPPED if action is overlay.revert else wanted
                    for path in old.keys() | new.keys():
                        self.assertIn(files.get(path), (old.get(path), new.get(path)))

                    status = self.status(root, package)
                    seen.add(status)
                    self.assertEqual(status is Status.APPLIED, files == wanted)
                    self.assertEqual(status is Status.PRISTINE, files == SHIPPED)

                    way_out(root, package)
                    if way_out is overlay.revert:
                        self.assert_pristine(root)
                        continue
                    self.assertEqual(read_files(root), wanted)
                    self.assertIs(self.status(root, package), Status.APPLIED)
                    self.assertFalse((root / STATE / "staged").exists())
                if not killed:
                    self.assertGreater(at, 20)
                    return seen
        raise AssertionError("never ended")

    def test_killed_while_applying(self) -> None:
        seen = self.sweep(overlay.revert, overlay.apply, self.first)
        self.assertEqual(seen, {Status.PRISTINE, Status.PARTLY, Status.APPLIED})

    def test_killed_while_reverting(self) -> None:
        seen = self.sweep(overlay.apply, overlay.revert, self.first)
        self.assertEqual(seen, {Status.PRISTINE, Status.PARTLY, Status.APPLIED})

    def test_killed_while_updating(self) -> None:
        seen = self.sweep(overlay.apply, overlay.apply, self.second)
        self.assertEqual(seen, {Status.OUTDATED, Status.PARTLY, Status.APPLIED})

    def test_full_disk_before_the_first_replacement_leaves_no_trace(self) -> None:
        error = OSError(28, "No space left on device", "somewhere")
        with mock.patch.object(os, "fsync", side_effect=error):
            with self.assertRaisesRegex(UserError, "somewhere: No space left"):
                overlay.apply(self.root, self.first)
        self.assert_pristine(self.root)

    def test_two_at_once(self) -> None:
        script = self.folder / "package1/scripts/apply_overlay.py"
        for _ in range(5):
            runs = [
                subprocess.Popen(
                    [sys.executable, script, self.root, *option],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for option in ([], ["--revert"], [], ["--revert"])
            ]
            for run in runs:
                message = run.communicate()[1]
                self.assertEqual(run.returncode, 0, message)
            files = read_files(self.root)
            self.assertIn(files, (SHIPPED, FIRST))
            if files == SHIPPED:
                self.assert_pristine(self.root)

    def test_second_run_waits_then_refuses(self) -> None:
        with overlay.exclusive(self.root / STATE / "lock", 0):
            with mock.patch.object(overlay, "LOCK_WAIT", 0.2):
                with self.assertRaisesRegex(UserError, "another run holds .*lock"):
                    overlay.apply(self.root, self.first)
        self.assertEqual(read_files(self.root), SHIPPED)
        self.assertTrue(overlay.apply(self.root, self.first))

    def test_edit_during_the_run_is_not_thrown_away(self) -> None:
        def edit(plan: Any) -> None:
            (self.root / KNAPSACK).write_text("mine\n")

        with mock.patch.object(overlay, "_remove_bytecode", edit):
            with self.assertRaisesRegex(
                UserError, "knapsack.py changed during the run"
            ):
                overlay.apply(self.root, self.first)
        self.assertEqual(read_files(self.root), {**SHIPPED, KNAPSACK: "mine\n"})

    def test_lock_whose_file_was_removed_is_not_enough(self) -> None:
        lock = self.folder / "lock"
        removed = []

        def flock(stream: Any, operation: int, real: Any = fcntl.flock) -> None:
            if not removed:  # the holder ends with --revert just before we get the lock
                removed.append(lock.unlink())
            real(stream, operation)

        with mock.patch.object(fcntl, "flock", flock), overlay.exclusive(lock, 5):
            with self.assertRaisesRegex(UserError, "another run holds"):
                with overlay.exclusive(lock, 0):
                    pass


class TestBytes(OverlayTestCase):
    def test_stale_bytecode_does_not_run(self) -> None:
        # Bytecode that Python trusts without a look at the source is the worst case.
        source = self.root / KNAPSACK
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH

        def answer() -> str:
            code = "import knapsack; print(knapsack.answer)"
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, cwd=source.parent, stdout=subprocess.PIPE)
            return done.stdout.decode().strip()

        for optimize in (0, 1, 2):
            py_compile.compile(source, optimize=optimize, invalidation_mode=unchecked)
        source.write_text("answer = 'unseen'\n")
        self.assertEqual(answer(), "old")
        source.write_text(SHIPPED[KNAPSACK])
        overlay.apply(self.root, self.first)
        self.assertEqual(answer(), "new")

        def replace(old: Path, new: Path, rename: Any = os.replace) -> None:
            # Another process imports the module a moment before it changes.
            if new == source:
                py_compile.compile(source, invalidation_mode=unchecked)
            rename(old, new)

        with mock.patch.object(overlay.os, "replace", replace):
            overlay.revert(self.root, self.first)
        self.assertEqual(answer(), "old")

    def test_hard_link_and_mode(self) -> None:
        live, cache = self.root / KNAPSACK, self.folder / "cache.py"
        live.chmod(0o640)
        os.link(live, cache)
        overlay.apply(self.root, self.first)
        self.assertEqual(live.read_text(), FIRST[KNAPSACK])
        self.assertEqual(cache.read_text(), SHIPPED[KNAPSACK])
        self.assertEqual(live.stat().st_mode & 0o777, 0o640)

    def test_symbolic_link_to_a_cache(self) -> None:
        live, cache = self.root / KNAPSACK, self.folder / "cache.py"
        live.rename(cache)
        live.symlink_to(cache)
        overlay.apply(self.root, self.first)
        self.assertEqual(live.read_text(), FIRST[KNAPSACK])
        self.assertEqual(cache.read_text(), SHIPPED[KNAPSACK])

    def test_settings_of_git_have_no_say(self) -> None:
        config = self.folder / ".gitconfig"
        config.write_text("[core]\nautocrlf = true\n[apply]\nwhitespace = error-all\n")
        repository = self.folder / "repository"
        subprocess.run(["git", "init", "-q", repository], check=True)
        root = write_files(repository / "inside", SHIPPED)
        with environment(
            GIT_CONFIG_GLOBAL=str(config),
            GIT_DIR=str(repository / ".git"),
            GIT_WORK_TREE=str(repository),
            HOME=str(self.folder),
            TMPDIR=str(root),
        ):
            tempfile.tempdir = None
            self.addCleanup(setattr, tempfile, "tempdir", None)
            overlay.apply(root, self.first)
        self.assertEqual(read_files(root), FIRST)
        status = subprocess.run(
            ["git", "status", "--porcelain", "-uall"],
            cwd=repository,
            capture_output=True,
            text=True,
        ).stdout
        self.assertNotIn(STATE.name, status)
        self.assertIn(ADDED, status)


class TestTargets(OverlayTestCase):
    def test_ways_to_name_a_tree(self) -> None:
        venv = self.folder / "venv"
        site = venv / "lib" / "python3.11" / "site-packages"
        write_files(site, SHIPPED)
        (venv / "lib64").symlink_to("lib")
        (self.folder / "link").symlink_to(self.root)
        named = {
            self.root: self.root,
            self.root / "torch": self.root,
            self.folder / "link": self.root,
            self.folder / "link" / "torch": self.root,
            venv: site,
            site: site,
        }
        for given, found in named.items():
            self.assertEqual(target.find(given), found)

    def test_torch_folder_that_is_a_link(self) -> None:
        (self.folder / "other").mkdir()
        (self.folder / "other" / "torch").symlink_to(self.root / "torch")
        overlay.apply(target.find(self.folder / "other"), self.first)
        self.assertIs(self.status(self.root, self.first), Status.APPLIED)

    def test_python(self) -> None:
        # This torch has no working code at all: it is found without being imported.
        (self.root / UNTOUCHED).write_text("raise SystemExit('imported')\n")
        with environment(PYTHONPATH=str(self.root)):
            self.assertEqual(target.find_for_python(sys.executable), self.root)
        with self.assertRaisesRegex(UserError, "no such program"):
            target.find_for_python(str(self.folder / "nothing"))
        script = self.folder / "python"
        for line, message in (("exit 3", "failed"), ("echo", "has no torch installed")):
            script.write_text(f"#!/bin/sh\n{line}\n")
            script.chmod(0o755)
            with self.assertRaisesRegex(UserError, message):
                target.find_for_python(str(script))

    def test_no_torch(self) -> None:
        (self.folder / "empty" / "torch").mkdir(parents=True)
        archive = self.folder / "torch.zip"
        with zipfile.ZipFile(archive, "w") as stream:
            stream.writestr(PARTITIONERS, "")
        for path, message in (
            (self.folder / "nowhere", "no such folder"),
            (self.folder / "empty", "no torch here"),
            (self.folder / "empty" / "torch", "no torch here"),
            (archive, "not a folder"),
        ):
            with self.assertRaisesRegex(
                UserError, f"{re.escape(str(path))}: {message}"
            ):
                target.find(path)
            done = self.cli(path)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, r"\Aerror: .*\n\Z")

    def test_read_only(self) -> None:
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o644)
        # With only the second closed, the state and one of the two files could be written.
        for closed in (self.root / "torch", (self.root / PARTITIONERS).parent):
            closed.chmod(0o555)
            with without_root():
                if not os.access(self.root, os.R_OK):
                    self.skipTest("the temporary folder is closed to other users")
                with self.assertRaisesRegex(UserError, "Permission denied"):
                    overlay.apply(self.root, self.first)
            closed.chmod(0o777)
            self.assertEqual(read_files(self.root), SHIPPED)
            self.assertIs(self.status(self.root, self.first), Status.PRISTINE)

    def test_read_only_but_applied(self) -> None:
        overlay.apply(self.root, self.first)
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            with without_root():
                self.assertIs(self.status(self.root, self.first), Status.APPLIED)
                self.assertFalse(overlay.apply(self.root, self.first))
        finally:
            for path in (self.folder, *self.folder.rglob("*")):
                path.chmod(0o755)


class TestCommand(OverlayTestCase):
    def test_exit_codes_of_check(self) -> None:
        def check(package: str = "package1") -> tuple[int, str]:
            done = self.cli("--check", self.root, package=package)
            self.assertEqual(done.stderr, "")
            return done.returncode, done.stdout.splitlines()[0].split(": ")[1]

        self.assertEqual(check(), (3, "pristine (base 1.0)"))
        self.assertEqual(self.cli(self.root).returncode, 0)
        self.assertEqual(check(), (0, "applied (base 1.0)"))
        self.assertEqual(check("package2"), (6, "outdated (base 1.0)"))
        (self.root / ADDED).unlink()
        self.assertEqual(check(), (4, "partly applied (base 1.0)"))
        (self.root / KNAPSACK).write_text("mine\n")
        self.assertEqual(check(), (5, "drifted (base 1.0)"))
        done = self.cli(self.root)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("Traceback", done.stderr)

    def test_dry_run_tells_and_does_nothing(self) -> None:
        done = self.cli("--dry-run", self.root)
        self.assertEqual(
            done.stdout.splitlines(),
            [
                f"would replace {KNAPSACK}",
                f"would add {ADDED}",
                f"would add {DEEPER}",
                f"would replace {PARTITIONERS}",
            ],
        )
        self.assert_pristine(self.root)
        self.cli(self.root)
        done = self.cli("--dry-run", "--revert", self.root)
        self.assertIn(f"would remove {ADDED}", done.stdout)
        self.assertEqual(read_files(self.root), FIRST)

    def test_messages(self) -> None:
        self.assertIn("applied: ", self.cli(self.root).stdout)
        self.assertIn("nothing to do: ", self.cli(self.root).stdout)
        self.assertIn("reverted: ", self.cli("--revert", self.root).stdout)
        self.assertIn("is pristine", self.cli("--revert", self.root).stdout)
        for arguments in (
            [],
            [self.root, "--python", "x"],
            ["--check", "--revert", "x"],
        ):
            self.assertEqual(self.cli(*arguments).returncode, 2)


class TestThisPackage(TestCase):
    """The real pins and patches, on a stand-in of the files as the running torch ships them."""

    def setUp(self) -> None:
        super().setUp()
        self.package = pins.load()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        try:
            for path in {*self.package.primary.touched(), PARTITIONERS}:
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(pristine.source(path), self.root / path)
        except UserError as error:
            self.skipTest(str(error))

    def test_apply_and_revert(self) -> None:
        shipped = read_files(self.root)
        self.assertIs(overlay.inspect(self.root).status, Status.PRISTINE)
        overlay.apply(self.root)
        plan = overlay.inspect(self.root)
        self.assertIs(plan.status, Status.APPLIED)
        files = read_files(self.root)
        for path, source in self.package.overlay.items():
            self.assertEqual(files[path], source.read_text())
        for path in plan.base.touched():
            self.assertNotEqual(files[path], shipped[path])
        overlay.revert(self.root)
        self.assertEqual(read_files(self.root), shipped)

    def test_torch_is_pinned_alike_in_both_places(self) -> None:
        groups = pins.read_toml(HOME / "pyproject.toml")["dependency-groups"]
        self.assertIn(f"torch=={self.package.primary.version}", groups["dev"])

    def test_every_base_is_whole(self) -> None:
        for base in self.package.bases:
            self.assertEqual(base.tag, f"v{base.version}")
            self.assertRegex(base.commit, r"\A[0-9a-f]{40}\Z")
            self.assertTrue((HOME / "patches" / base.series).is_dir())
            base.touched()

    def test_upstream_module_is_loaded_as_shipped(self) -> None:
        module = pristine.load_upstream("knapsack")
        data = Path(str(module.__file__)).read_bytes()
        pinned = {base.sha256[KNAPSACK] for base in self.package.bases}
        self.assertIn(hashlib.sha256(data).hexdigest(), pinned)
        kept = module.greedy_knapsack([1.0, 1.0], [1.0, 2.0], 1.0)
        self.assertEqual(kept, (2.0, [1], [0]))


if __name__ == "__main__":
    run_tests()
