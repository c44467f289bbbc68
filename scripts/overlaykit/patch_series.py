"""Edit a patch series as commits of a scratch repository, and write it back.

`open` makes the repository: the pristine files that the base pins, and one commit per patch
on top. Change it with git as you like (commit --amend, rebase -i, new commits); `save` then
writes the commits back as the series, one line of context, numbered from 0001.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from overlaykit import pins, pristine
from overlaykit.cli import UserError


AUTHOR = "torch-ac-knapsack contributors"
MAIL = "contributors@torch-ac-knapsack.invalid"
START = "pristine"  # the tag of the commit that the series starts from


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest)
    parser.add_argument("action", choices=["open", "save"])
    parser.add_argument("folder", type=Path, help="the scratch repository")
    parser.add_argument("--base", help="a supported release; default: the primary one")
    return parser


def _git(folder: Path, *arguments: str) -> str:
    settings = ["-c", f"user.name={AUTHOR}", "-c", f"user.email={MAIL}"]
    done = subprocess.run(
        ["git", *settings, "-c", "core.autocrlf=false", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise UserError(f"git {arguments[0]} failed in {folder}:\n{said}")
    return done.stdout


def open_series(folder: Path, base: pins.Base) -> None:
    """Make the scratch repository; its branch ends with the last patch that applies.

    Raises:
        UserError: the folder exists, a pristine file is not at hand, or a patch does not
            apply: the folder is then left in git's ordinary state for `git am --continue`.
    """
    if folder.exists():
        raise UserError(f"{folder} exists already")
    files = {path: pristine.source(path).read_bytes() for path in base.sha256}
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    _git(folder, "init", "--quiet")
    for name, value in (("user.name", AUTHOR), ("user.email", MAIL)):
        _git(folder, "config", name, value)
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", f"torch {base.version}")
    _git(folder, "tag", START)
    if base.patches:
        patches = [str(patch) for patch in base.patches]
        _git(folder, "am", "--quiet", "--committer-date-is-author-date", *patches)


def save_series(folder: Path, series: Path) -> list[str]:
    """Replace the patches of a series by the commits since the tag; return their names.

    Raises:
        UserError: the folder is no scratch repository, or holds changes without a commit.
    """
    if not (folder / ".git").exists():
        raise UserError(f"{folder} is no repository that `open` made")
    if _git(folder, "status", "--porcelain"):
        raise UserError(f"{folder} has changes without a commit; commit or drop them")
    with tempfile.TemporaryDirectory(dir=series.parent) as name:
        form = ["--unified=1", "--zero-commit", "--no-signature", "--no-numbered"]
        form.append("--filename-max-length=100")
        _git(
            folder,
            "format-patch",
            "--quiet",
            *form,
            f"--output-directory={name}",
            START,
        )
        written = sorted(Path(name).glob("*.patch"))
        for old in series.glob("*.patch"):
            old.unlink()
        for patch in written:
            shutil.move(patch, series / patch.name)
    return [patch.name for patch in written]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    package = pins.load()
    base = package.base(options.base) if options.base else package.primary
    if options.action == "open":
        open_series(options.folder, base)
        print(f"{options.folder}: {len(base.patches)} commits since the tag {START}")
        return 0
    for name in save_series(options.folder, pins.HOME / "patches" / base.series):
        print(name)
    return 0
