"""``python -m limpet``."""

import sys

from limpet.cli import main

if __name__ == "__main__":
    sys.exit(main())
