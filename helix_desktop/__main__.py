"""python -m helix_desktop"""

import sys

from helix_desktop.cli import main

if __name__ == "__main__":
    sys.exit(main())
