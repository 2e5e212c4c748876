"""``python -m wpnode_ext`` is the command ``wpnode``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
