"""`python -m anyorder`: the command line, for launchers that start modules, such as torchrun."""

from __future__ import annotations

import sys

from anyorder.cli import main

if __name__ == "__main__":
    sys.exit(main())
