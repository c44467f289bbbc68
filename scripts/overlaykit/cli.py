"""How every script ends: one clear line for a user's mistake, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable


class UserError(Exception):
    """A mistake the user can mend; the message names the file, argument or index."""


def run(main: Callable[[], int]) -> None:
    """Exit with `main`'s status; 1 with one line for a UserError, 130 for Ctrl-C."""
    try:
        status = main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = 130
    sys.exit(status)
