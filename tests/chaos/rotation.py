"""Rotate keys every second under load, and revoke them: no call fails, no cache goes cold.

    just chaos rotation --seconds 600 --processes 4

Several gateways at one port over one PostgreSQL, fifty conversations that send their whole history. The load is
`tests/gateway/key_rotation.py`; CI runs it for seconds.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("gateway", "stores")]
from key_rotation import main  # noqa: E402 - beside us

if __name__ == "__main__":
    sys.exit(main())
