"""What this package contains: `patches/pins.toml`, the patch series and the overlay's new files."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from overlaykit.cli import UserError


HOME = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Base:
    """One supported PyTorch release; `sha256` maps a pristine file's path to its digest."""

    version: str
    tag: str
    commit: str
    series: str
    sha256: dict[str, str]
    patches: tuple[Path, ...]

    def touched(self) -> list[str]:
        """Return the paths below torch/ that the series edits, sorted.

        Raises:
            UserError: a patch edits a file whose sha256 is not pinned.
        """
        found = {
            path: patch
            for patch in self.patches
            for path in re.findall(
                r"^diff --git a/(torch/\S+) b/", patch.read_text("utf-8"), re.MULTILINE
            )
        }
        for path, patch in found.items():
            if path not in self.sha256:
                raise UserError(
                    f"{patch.name} edits {path}, which pins.toml does not pin for {self.version}"
                )
        return sorted(found)


@dataclass(frozen=True)
class Package:
    """The bases, the primary one first, and the overlay's files by their path in PyTorch."""

    bases: tuple[Base, ...]
    overlay: dict[str, Path]

    @property
    def primary(self) -> Base:
        return self.bases[0]

    def base(self, version: str) -> Base:
        """Return the base of that version, or raise a UserError that lists the others."""
        for base in self.bases:
            if base.version == version:
                return base
        known = ", ".join(base.version for base in self.bases)
        raise UserError(f"torch {version} is not supported; supported: {known}")


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; Python 3.10 has no parser of its own but pip brings one."""
    for name in ("tomllib", "pip._vendor.tomli"):
        try:
            parsed: dict[str, Any] = importlib.import_module(name).loads(
                path.read_text("utf-8")
            )
        except ModuleNotFoundError:
            continue
        return parsed
    raise UserError(
        f"cannot read {path.name}: use Python 3.11 or newer, or install pip"
    )


def load(home: Path = HOME) -> Package:
    """Read the package whose repository root is `home`."""
    data = read_toml(home / "patches" / "pins.toml")
    bases = [
        Base(
            patches=tuple(sorted((home / "patches" / entry["series"]).glob("*.patch"))),
            **entry,
        )
        for entry in data["base"]
    ]
    bases.sort(key=lambda base: base.version != data["primary"])
    overlay = home / "torch_overlay"
    files = {
        path.relative_to(overlay).as_posix(): path
        for path in sorted(overlay.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    return Package(tuple(bases), files)
