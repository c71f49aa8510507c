"""``python -m tests.golden [NAME …] [--update]``."""

import sys

from .run import main

# A module of its own, which processes that a pool starts do not import.
if __name__ == "__main__":
    sys.exit(main())
