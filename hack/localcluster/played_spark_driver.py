"""Plays the programs in the pods of Spark drivers: each creates, replaces and deletes its executors."""

import asyncio
import contextlib
import json
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from localcluster.played_spark import (
    APPLICATION_LABEL,
    CONFIGURATION_VOLUME,
    DRIVER,
    NUMBER_LABEL,
    PROPERTIES_KEY,
    ROLE_LABEL,
    TEMPLATE_KEY,
    executor_count,
    executor_pod,
    read_properties,
)

_RETRY_S: Final = 0.5
_PODS: Final = "/api/v1/pods"
_SELECTOR: Final = f"{ROLE_LABEL} in (driver,executor)"
_ENDED: Final = frozenset({"Succeeded", "Failed"})

Pod = dict[str, Any]


async def play_drivers(api: aiohttp.ClientSession) -> None:
    """Play all drivers of a cluster until cancelled.

    Args:
        api: a session with the API server as base URL, with permission to read, create and delete pods.
    """
    changed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(_watch(api, changed))
        group.create_task(_Drivers(api).play(changed))


async def _watch(api: aiohttp.ClientSession, changed: asyncio.Event) -> None:
    """Set an event whenever a pod of Spark changes."""
    query = {"labelSelector": _SELECTOR, "watch": "true"}
    # The metadata is enough: the event has no content.
    headers = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    while True:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            timeout = aiohttp.ClientTimeout(total=None)
            async with api.get(_PODS, params=query, headers=headers, timeout=timeout) as answer:
                answer.raise_for_status()
                async for _ in answer.content:
                    changed.set()
        await asyncio.sleep(_RETRY_S)
        changed.set()


class _Drivers:
    """The drivers of a cluster.

    Args:
        api: a session with the API server as base URL.
    """

    def __init__(self, api: aiohttp.ClientSession) -> None:
        self._api = api
        self._numbers: dict[str, int] = {}
        """The number of the newest executor of each driver, by UID."""

    async def play(self, changed: asyncio.Event) -> None:
        """Do the work of all drivers whenever a pod changed, and again after a failure."""
        while True:
            await changed.wait()
            changed.clear()
            try:
                await self._play_once()
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(_RETRY_S)
                changed.set()

    async def _play_once(self) -> None:
        async with self._api.get(_PODS, params={"labelSelector": _SELECTOR}) as answer:
            answer.raise_for_status()
            pods: list[Pod] = (await answer.json())["items"]
        drivers = {_application(pod): pod for pod in pods if _label(pod, ROLE_LABEL) == DRIVER.name}
        executors = [pod for pod in pods if _label(pod, ROLE_LABEL) != DRIVER.name]
        for executor in executors:
            # A driver deletes its executors when it ends, and those that ended.
            driver = drivers.get(_application(executor))
            if driver is None or _is_ending(driver) or _is_ended(executor):
                await self._delete(executor)
        for application, driver in drivers.items():
            if driver["status"].get("phase") == "Running" and not _is_ending(driver):
                own = [each for each in executors if _application(each) == application]
                await self._request_executors(driver, own)

    async def _request_executors(self, driver: Pod, executors: list[Pod]) -> None:
        """Create the executors that a running driver lacks."""
        data = await self._configuration(driver)
        conf, template = read_properties(data[PROPERTIES_KEY]), json.loads(data[TEMPLATE_KEY])
        uid = driver["metadata"]["uid"]
        newest = max([self._numbers.get(uid, 0), *(int(_label(each, NUMBER_LABEL)) for each in executors)])
        active = sum(not _is_ending(each) for each in executors)
        for number in range(newest + 1, newest + 1 + executor_count(conf) - active):
            pod = executor_pod(conf, template, driver, number)
            async with self._api.post(_path(driver, "pods"), json=pod) as answer:
                answer.raise_for_status()
            self._numbers[uid] = number

    async def _configuration(self, driver: Pod) -> dict[str, str]:
        """Return the content of the ConfigMap of a driver."""
        (volume,) = (each for each in driver["spec"]["volumes"] if each["name"] == CONFIGURATION_VOLUME)
        path = f"{_path(driver, 'configmaps')}/{volume['configMap']['name']}"
        async with self._api.get(path) as answer:
            answer.raise_for_status()
            return (await answer.json())["data"]

    async def _delete(self, executor: Pod) -> None:
        if "deletionTimestamp" in executor["metadata"]:
            return
        path = f"{_path(executor, 'pods')}/{executor['metadata']['name']}"
        async with self._api.delete(path) as answer:
            if answer.status != HTTPStatus.NOT_FOUND:
                answer.raise_for_status()


def _label(pod: Pod, name: str) -> str:
    return pod["metadata"]["labels"][name]


def _application(pod: Pod) -> tuple[str, str]:
    return pod["metadata"]["namespace"], _label(pod, APPLICATION_LABEL)


def _is_ended(pod: Pod) -> bool:
    return pod["status"].get("phase") in _ENDED


def _is_ending(pod: Pod) -> bool:
    """Whether a pod has ended or is being deleted."""
    return "deletionTimestamp" in pod["metadata"] or _is_ended(pod)


def _path(pod: Pod, resource: str) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/{resource}"
