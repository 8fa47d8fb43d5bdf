"""Stored objects of a cluster: kinds that may not be listed, and the configuration of the manager."""

import time
from typing import Any, cast

import pytest

from admitq.asking.listed_objects import list_stored_objects
from admitq.asking.stored_objects import SourceError, StoredObjects
from admitq.runtime.client import Client
from admitq.runtime.errors import ApiError
from admitq.runtime.resources import Resource
from admitq_api.labels import DEFAULT_GROUP, names_for

NAMES = names_for(DEFAULT_GROUP)
TEXT = f"apiVersion: {NAMES.config_api_version}\nkind: Configuration\n"


def named(name: str, namespace: str = "", **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}, **parts}


class ListingClient:
    """Lists given objects, or fails, by the plural of the kind."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    async def list(
        self, resource: Resource, namespace: str | None = None, label_selector: str | None = None
    ) -> tuple[list[dict[str, Any]], str]:
        assert namespace is None
        assert (label_selector is not None) is (resource.plural == "configmaps")
        answer = self._found.get(resource.plural, [])
        if isinstance(answer, int):
            raise ApiError(answer, "Failed", f"{resource.plural} failed")
        return answer, "1"


async def listed(**found: Any) -> StoredObjects:
    return await list_stored_objects(cast("Client", ListingClient(found)), NAMES)


async def test_objects_are_those_that_the_core_observes_and_priority_classes() -> None:
    begun = time.time_ns()
    objects = await listed(
        localqueues=[named("lq", "team")],
        namespaces=[named("team")],
        workloadpriorityclasses=[named("high", value=7)],
    )
    assert [plural for plural, _ in objects.observed] == ["namespaces", "localqueues"]
    assert objects.others == (
        {**named("high", value=7), "apiVersion": NAMES.api_version, "kind": "WorkloadPriorityClass"},
    )
    assert begun <= objects.read_at <= time.time_ns()
    assert objects.notes == ()


@pytest.mark.parametrize("status", [403, 404], ids=["forbidden", "not installed"])
async def test_kind_that_cannot_be_listed_is_a_note(status: int) -> None:
    objects = await listed(cohorts=status, clusterqueues=[named("cq")])
    assert objects.notes == (f"cohorts.{NAMES.group} cannot be listed: cohorts have no quota of their own",)
    assert [plural for plural, _ in objects.observed] == ["clusterqueues"]


@pytest.mark.parametrize("plural", ["workloads", "clusterqueues", "localqueues", "resourceflavors"])
async def test_kind_without_which_no_answer_is_right_is_an_error(plural: str) -> None:
    with pytest.raises(SourceError, match=f"^{plural}.{NAMES.group} of all namespaces cannot be listed: "):
        await listed(**{plural: 403})


async def test_other_failure_is_an_error() -> None:
    with pytest.raises(ApiError):
        await listed(cohorts=500)


async def test_configuration_of_the_manager_is_read_from_its_config_map() -> None:
    other = named("dashboard", "monitoring", data={"admitq.json": "{}"})
    config = named("admitq-config", "admitq-system", data={"config.yaml": TEXT})
    assert (await listed(configmaps=[other, config])).configuration == TEXT
    assert (await listed(configmaps=[other])).configuration is None


async def test_configuration_that_may_not_be_read_is_a_note() -> None:
    objects = await listed(configmaps=403)
    assert objects.configuration is None
    assert [note.split(":")[0] for note in objects.notes] == [
        "the configuration of the manager cannot be read"
    ]
