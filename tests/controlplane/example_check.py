"""A controller of admission checks outside admitq, from docs/guides/write-an-admission-check.md."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from admitq.runtime.client import Client
from admitq.runtime.controller import Controller
from admitq.runtime.kinds import kinds_of
from admitq.runtime.store import Key, Store
from admitq.runtime.watcher import Watcher
from admitq.workloads.admission_check_reports import AdmissionCheckReport, listed_checks, update_check
from admitq_api.conditions import find_condition, is_true, with_condition
from admitq_api.labels import Names

ChooseState = Callable[[dict[str, Any], Any], AdmissionCheckReport | None]
"""Return the new state of a check of a Workload; None leaves the check unchanged."""


class ExampleCheck:
    """Controller of the AdmissionChecks with one ``controllerName``."""

    def __init__(self, client: Client, names: Names, controller_name: str, choose_state: ChooseState) -> None:
        self._client, self._name, self._choose_state = client, controller_name, choose_state
        self._kinds = kinds_of(names)
        self._checks, self._workloads = Store(self._kinds.admission_checks), Store(self._kinds.workloads)
        self._controller = Controller[Key]("example-check", self._reconcile)
        for store in (self._checks, self._workloads):
            store.subscribe(lambda change: self._controller.add(change.key))

    async def run(self) -> None:
        """Run until cancelled."""
        watchers = [Watcher(self._client, store.resource, store) for store in (self._checks, self._workloads)]
        async with asyncio.TaskGroup() as tasks:
            for watcher in watchers:
                tasks.create_task(watcher.run())
            await asyncio.gather(*(watcher.synced.wait() for watcher in watchers))
            tasks.create_task(self._controller.run())

    def requeue_workloads(self) -> None:
        """Evaluate all Workloads again, after a change of what the states depend on."""
        for key in self._workloads.keys():  # noqa: SIM118 no mapping
            self._controller.add(key)

    async def _reconcile(self, key: Key) -> None:
        await (self._update_states(key) if key.namespace else self._activate(key.name))

    async def _activate(self, name: str) -> None:
        """Set the condition Active. Until then the ClusterQueues with this check admit nothing."""
        check = self._checks.get("", name)
        if check is None or check["spec"]["controllerName"] != self._name:
            return
        before = check.get("status", {}).get("conditions", [])
        if find_condition(before, "Active") is None:
            after = with_condition(
                before, type="Active", status=True, reason="Active", message="running", now=time.time_ns()
            )
            await self._write(self._kinds.admission_checks, check, {"conditions": after})

    async def _update_states(self, key: Key) -> None:
        """Write the states of this controller's checks while the Workload holds quota."""
        workload = self._workloads.get(*key)
        conditions = (workload or {}).get("status", {}).get("conditions", [])
        if workload is None or not is_true(conditions, "QuotaReserved"):
            return
        if is_true(conditions, "Evicted") or is_true(conditions, "Finished"):
            return
        before = checks = listed_checks(workload)
        for listed in before:
            check = self._checks.get("", listed["name"])
            if check is not None and check["spec"]["controllerName"] == self._name:
                report = self._choose_state(workload, listed)
                checks = checks if report is None else update_check(checks, report, time.time_ns())
        if checks != before:
            await self._write(self._kinds.workloads, workload, {"admissionChecks": checks})

    async def _write(self, resource: Any, obj: dict[str, Any], status: dict[str, Any]) -> None:
        """Patch the status of the version that was read; after a conflict the controller retries."""
        metadata = obj["metadata"]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        namespace = metadata.get("namespace")
        await self._client.merge_patch(resource, metadata["name"], patch, namespace, "status")
