"""Find the torch tree to work on: the folder that holds `torch/`, in a checkout or an environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from overlaykit.cli import UserError


# Present in every supported release, in a checkout as well as in a wheel.
LANDMARK = Path("torch", "_functorch", "partitioners.py")

FIND_TORCH = """
import importlib.util
spec = importlib.util.find_spec("torch")
print(spec.origin if spec and spec.origin else "")
"""


def find(target: Path) -> Path:
    """Return the folder that holds `torch/` for a user's `target`, as an absolute path.

    `target` may be a source checkout, a site-packages folder, the torch folder
    itself or the root of a virtual or conda environment.

    Raises:
        UserError: `target` does not exist, is no torch, or holds several.
    """
    if not target.exists():
        raise UserError(f"{target}: no such folder")
    if not target.is_dir():
        raise UserError(f"{target}: not a folder; a zipped torch is not supported")
    roots = _roots(target)
    if not roots:
        raise UserError(f"{target}: no torch here (no {LANDMARK.as_posix()})")
    if len(roots) > 1:
        raise UserError(f"{target}: several: {', '.join(map(str, sorted(roots)))}")
    return roots.pop()


def has_torch(target: Path) -> bool:
    """Tell whether `find` would find a torch."""
    return len(_roots(target)) == 1


def _roots(target: Path) -> set[Path]:
    folder = target.absolute()
    candidates = [folder, *folder.glob("lib*/python3*/site-packages")]
    if folder.name == "torch":
        candidates.append(folder.parent)
    return {path.resolve() for path in candidates if (path / LANDMARK).is_file()}


def find_for_python(python: str) -> Path:
    """Return the folder that holds the `torch/` which `python` would import, not importing it.

    Raises:
        UserError: `python` does not run, or finds no torch.
    """
    program = shutil.which(python)
    if program is None:
        raise UserError(f"{python}: no such program")
    try:
        # From the root folder, so that a ./torch of the caller's folder is not found.
        done = subprocess.run(
            [os.path.abspath(program), "-c", FIND_TORCH],
            capture_output=True,
            text=True,
            cwd="/",
        )
    except OSError as error:
        raise UserError(f"cannot run {python}: {error.strerror}") from error
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise UserError(f"{python} failed: {reason[0]}")
    origin = done.stdout.strip()
    if not origin:
        raise UserError(f"{python} has no torch installed")
    return find(Path(origin).parent)
