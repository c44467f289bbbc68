"""`scripts/setup`: make .venv with the pinned torch and the development tools, apply the overlay.

Standard library only: it runs before anything is installed. `.venv/overlay-setup.json` is
written last and says what was installed, so a run that was cut short is gone on with.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from overlaykit import cli, overlay, pins, target
from overlaykit.cli import UserError


VENV = pins.HOME / ".venv"
PYTHON = VENV / "bin" / "python"
PIP = (PYTHON, "-m", "pip", "install", "--disable-pip-version-check")
STAMP = VENV / "overlay-setup.json"
LOCK_WAIT = 3600.0  # seconds; the other run may be downloading

EPILOG = """\
environment:
  TORCH_INDEX_URL  the wheel index for torch, as --index-url
  PYTHON           the Python (3.10 or newer) to make .venv with

On Linux the default wheel of torch comes with CUDA, several GB. The CPU wheels are smaller:
PyTorch's install page (Get Started, Locally) names the index for them.
"""


def parse(supported: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/setup",
        description="Make .venv with a pinned torch and apply the overlay to it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--torch-version",
        metavar="VERSION",
        help=f"one of {', '.join(supported)}; default: what .venv has, else {supported[0]}",
    )
    parser.add_argument(
        "--index-url",
        metavar="URL",
        default=os.environ.get("TORCH_INDEX_URL"),
        help="the wheel index to install torch from; default: pip's own settings",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing if nothing is to be done"
    )
    return parser.parse_args()


def main() -> int:
    package = pins.load()
    arguments = parse([base.version for base in package.bases])
    installed = stamp().get("torch")
    version = arguments.torch_version or installed or package.primary.version
    wanted = {"torch": package.base(version).version, "requirements": fingerprint()}
    if shutil.which("git") is None:
        raise UserError("git is needed and was not found")

    if is_installed(wanted) and is_applied(package):
        if not arguments.quiet:
            print(f"nothing to do: .venv has torch {version} with the overlay applied")
        return 0

    with overlay.exclusive(pins.HOME / "pyproject.toml", LOCK_WAIT):
        if not is_installed(wanted):
            STAMP.unlink(missing_ok=True)
            make_venv()
            install(version, arguments.index_url)
        root = target.find(VENV)
        if overlay.apply(root, package):
            print(f"applied the overlay to torch {version} in .venv")
        step("importing torch", PYTHON, "-c", "import torch")
        STAMP.write_text(json.dumps(wanted))
    print(f"ready: .venv has torch {version} with the overlay applied")
    return 0


def stamp() -> dict[str, str]:
    """Return what the last finished run installed, {} if there was none."""
    try:
        content: dict[str, str] = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return content


def requirements() -> list[str]:
    """Return the development dependencies of pyproject.toml other than torch."""
    groups = pins.read_toml(pins.HOME / "pyproject.toml")["dependency-groups"]
    return [line for line in groups["dev"] if not line.startswith("torch==")]


def fingerprint() -> str:
    return hashlib.sha256("\n".join(requirements()).encode()).hexdigest()


def is_installed(wanted: dict[str, str]) -> bool:
    return stamp() == wanted and PYTHON.exists() and target.has_torch(VENV)


def is_applied(package: pins.Package) -> bool:
    return overlay.inspect(target.find(VENV), package).status is overlay.Status.APPLIED


def make_venv() -> None:
    """Create .venv, or mend it, unless it has a Python with pip already."""
    if PYTHON.exists():
        try:
            subprocess.run(
                [PYTHON, "-c", "import pip"], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError):
            pass
        else:
            return
    if not all(map(importlib.util.find_spec, ("venv", "ensurepip"))):
        raise UserError(
            f"{sys.executable} lacks venv or ensurepip; install them"
            " (Debian and Ubuntu: the package python3-venv)"
        )
    step(
        f"making .venv with Python {platform.python_version()}",
        sys.executable, "-m", "venv", "--clear", VENV,
    )  # fmt: skip


def install(version: str, index_url: str | None) -> None:
    """Install torch, from its own index if one is given, then the development tools."""
    index = ["--index-url", index_url] if index_url else []
    step(f"installing torch {version}", *PIP, *index, f"torch=={version}")
    step("installing the development tools", *PIP, f"torch=={version}", *requirements())


def step(title: str, *command: str | Path) -> None:
    """Run a command with its output in view."""
    print(f"{title} ...", flush=True)
    # A user's PIP_USER or PYTHONPATH would install, or look, elsewhere.
    environment = {**os.environ, "PIP_USER": "0"}
    environment.pop("PYTHONPATH", None)
    if subprocess.run(command, env=environment).returncode:
        raise UserError(f"{title} failed, see above; run scripts/setup again to go on")


if __name__ == "__main__":
    cli.run(main)
