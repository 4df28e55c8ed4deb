"""`python -m kairo_team` is `kairo`."""

import sys

from kairo_team.cli import main

if __name__ == "__main__":
    sys.exit(main())
