"""A process that holds a lease while it can, for tests that stop and continue it.

Arguments: kubeconfig, namespace, name and identity of the lease. Each line of output is a time of the
monotonic clock at which the process was the leader by its own state.
"""

import asyncio
import sys
from pathlib import Path

from admitq.runtime.credentials import load_credentials
from admitq.runtime.lease_claim import LeaseTiming, steady_seconds
from admitq.runtime.leases import Elector


async def main(kubeconfig: str, namespace: str, name: str, identity: str) -> None:
    elector = Elector(
        load_credentials(Path(kubeconfig)),
        namespace=namespace,
        name=name,
        identity=identity,
        user_agent="admitq-tests",
        timing=LeaseTiming(duration=3.0, renew_deadline=2.0, retry=0.2, call=1.0),
    )
    elector.start()
    while True:
        if elector.is_leader():
            print(steady_seconds(), flush=True)
        await asyncio.sleep(0.005)


asyncio.run(main(*sys.argv[1:]))
