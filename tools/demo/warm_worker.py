"""`fleet worker` for the demo: what takes longest, importing torch, is done while the broker still starts.

Started as `python -m tools.demo.warm_worker worker …`; waits for its turn and then is the `fleet` command.
"""

import sys

import workers.lifecycle
import workers.models.torch_backend  # noqa: F401
from tools.cli import main
from tools.demo.lines import wait_for_turn

if __name__ == "__main__" and (servers := wait_for_turn()):
    sys.argv += ["--bootstrap-servers", servers]
    main()
