"""The speed of a core of this machine: the CPU time of a computation that is always the same.

The speed of a virtual machine changes by half from hour to hour, with the load of its host. So figures of two
runs are comparable only if the speed was about the same.
"""

import json
import time
from typing import Final

_ROUNDS: Final = 5
_REPEATS: Final = 3000
_OBJECT: Final = {
    "metadata": {"name": "job-1", "labels": {f"key-{at}": f"value-{at}" for at in range(10)}},
    "spec": {"containers": [{"name": f"c{at}", "args": [str(n) for n in range(20)]} for at in range(3)]},
}


def reference_cpu_s() -> float:
    """Return the CPU-seconds for writing and reading JSON 3,000 times, the median of 5 rounds."""
    rounds = sorted(_round() for _ in range(_ROUNDS))
    return round(rounds[_ROUNDS // 2], 4)


def _round() -> float:
    before = time.process_time()
    for _ in range(_REPEATS):
        json.loads(json.dumps(_OBJECT))
    return time.process_time() - before
