"""``python -m xla_torch``: see `cli`."""

import sys

from .cli import main

sys.exit(main())
