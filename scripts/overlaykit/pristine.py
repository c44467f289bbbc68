"""Load upstream's modules as PyTorch ships them, also where the overlay has been applied."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from overlaykit import pins
from overlaykit.cli import UserError
from overlaykit.overlay import sha256_of, STATE


MODULES = "torch/_functorch/_activation_checkpointing"


def source(path: str, root: Path | None = None) -> Path:
    """Return where the shipped bytes of a pinned file lie: in the tree, or kept aside.

    Args:
        path: the file in PyTorch, such as "torch/_functorch/config.py".
        root: the folder that holds `torch/`; the running Python's torch by default.

    Raises:
        UserError: there is no torch, or neither file is one that PyTorch ships.
    """
    if root is None:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            raise UserError("this Python has no torch; run scripts/setup")
        root = Path(spec.origin).parents[1]
    shipped = {base.sha256.get(path) for base in pins.load().bases}
    for file in (root / path, root / STATE / "pristine" / path):
        if file.is_file() and sha256_of(file.read_bytes()) in shipped:
            return file
    raise UserError(f"{root / path} is not as PyTorch ships it and no copy was kept")


def load_upstream(name: str = "knapsack") -> ModuleType:
    """Import `torch/_functorch/_activation_checkpointing/<name>.py` as shipped, under a new name.

    The module's own imports of its neighbours still give the installed, patched ones.

    Raises:
        UserError: see `source`.
    """
    path = source(f"{MODULES}/{name}.py")
    spec = importlib.util.spec_from_file_location(f"upstream_{name}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
