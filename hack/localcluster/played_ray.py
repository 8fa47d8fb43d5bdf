"""Plays the programs in the pods of Ray clusters: the dashboard of a head, with jobs and Serve applications.

Annotations of a head pod, or of its template, decide what the dashboard answers:

    kwok.admitq.dev/ray-job-status: RUNNING       the status of each job that was submitted
    kwok.admitq.dev/ray-serve-status: RUNNING     the status of each Serve application

RUNNING is the default of both.
"""

import contextlib
from collections.abc import Generator
from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp import web

JOB_STATUS = "kwok.admitq.dev/ray-job-status"
SERVE_STATUS = "kwok.admitq.dev/ray-serve-status"

_MESSAGES = {
    "SUCCEEDED": "Job finished successfully.",
    "FAILED": "Job entrypoint command failed with exit code 1",
}
"""What the dashboard says of jobs with a status."""

_API: web.AppKey[aiohttp.ClientSession] = web.AppKey("api", aiohttp.ClientSession)
_SERVED: web.AppKey[dict[str, list[str]]] = web.AppKey("served", dict)
"""The names of the Serve applications of each head, by its UID."""


class PodAddresses:
    """The addresses of the pods that open connections are for. A request itself does not name its pod."""

    def __init__(self) -> None:
        self._by_port: dict[int, str] = {}

    @contextlib.contextmanager
    def noted(self, port: int, address: str) -> Generator[None]:
        """Note for the block that the connection from this port is for the pod with this address."""
        self._by_port[port] = address
        try:
            yield
        finally:
            del self._by_port[port]

    def of(self, request: web.Request) -> str:
        """Return the address of the pod that a request is for."""
        _, port = request.get_extra_info("peername")
        return self._by_port[port]


_ADDRESSES: web.AppKey[PodAddresses] = web.AppKey("addresses", PodAddresses)


def create_application(api: aiohttp.ClientSession, addresses: PodAddresses) -> web.Application:
    """Return the program that answers in place of all pods.

    Args:
        api: a session with the API server as base URL, with permission to read pods.
        addresses: the pods that the connections are for.
    """
    application = web.Application()
    application[_API] = api
    application[_ADDRESSES] = addresses
    application[_SERVED] = {}
    application.add_routes(
        [
            web.post("/api/jobs/", _submit),
            web.get("/api/jobs/{id}", _read_job),
            web.post("/api/jobs/{id}/stop", _stop),
            web.delete("/api/jobs/{id}", _delete),
            web.put("/api/serve/applications/", _deploy),
            web.get("/api/serve/applications/", _read_applications),
            web.get("/-/healthz", _healthy),
        ]
    )
    return application


async def _pod(request: web.Request) -> dict[str, Any]:
    """Return the pod that a request is for.

    Raises:
        web.HTTPBadGateway: no pod has this address.
    """
    address = request.app[_ADDRESSES].of(request)
    query = {"fieldSelector": f"status.podIP={address}"}
    async with request.app[_API].get("/api/v1/pods", params=query) as answer:
        answer.raise_for_status()
        pods = (await answer.json())["items"]
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    if not running:
        raise web.HTTPBadGateway(text=f"no pod has the address {address}")
    return running[0]


def _annotation(pod: dict[str, Any], name: str) -> str:
    return pod["metadata"].get("annotations", {}).get(name, "RUNNING")


async def _submit(request: web.Request) -> web.Response:
    await _pod(request)
    body = await request.json()
    return web.json_response({"job_id": body["submission_id"], "submission_id": body["submission_id"]})


async def _read_job(request: web.Request) -> web.Response:
    name = request.match_info["id"]
    status = _annotation(await _pod(request), JOB_STATUS)
    message = _MESSAGES.get(status, "")
    return web.json_response({"submission_id": name, "job_id": name, "status": status, "message": message})


async def _stop(request: web.Request) -> web.Response:
    await _pod(request)
    return web.json_response({"stopped": True})


async def _delete(request: web.Request) -> web.Response:
    await _pod(request)
    return web.json_response({"deleted": True})


async def _deploy(request: web.Request) -> web.Response:
    pod = await _pod(request)
    body = await request.json()
    names = [each.get("name", "default") for each in body["applications"]]
    request.app[_SERVED][pod["metadata"]["uid"]] = names
    return web.Response(status=HTTPStatus.OK)


async def _read_applications(request: web.Request) -> web.Response:
    pod = await _pod(request)
    status = _annotation(pod, SERVE_STATUS)
    names = request.app[_SERVED].get(pod["metadata"]["uid"], [])
    applications = {
        name: {"name": name, "status": status, "message": "", "deployments": {}} for name in names
    }
    return web.json_response({"applications": applications})


async def _healthy(request: web.Request) -> web.Response:
    await _pod(request)
    return web.Response(text="success")
