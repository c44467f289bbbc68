"""How every script ends: one clear line for a user's mistake, never a traceback."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path


class UserError(Exception):
    """A mistake the user can mend; the message names the file, argument or index."""


def run(main: Callable[[], int]) -> None:
    """Exit with `main`'s status; 1 with one line for a UserError, 130 for Ctrl-C."""
    # A reader that goes away, such as `head`, ends the run without a traceback.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        status = main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 130
    sys.exit(status)


def launch(module: str) -> None:
    """Run a module's `main` in the repository's .venv, whatever Python started this."""
    venv = Path(__file__).resolve().parents[2] / ".venv"
    python = venv / "bin" / "python"
    if Path(sys.prefix).resolve() != venv.resolve():
        if not python.exists():
            sys.exit("error: there is no .venv yet; run scripts/setup first")
        os.execv(python, [str(python), *sys.argv])
    run(importlib.import_module(module).main)
