"""Running children of a suspended job, if the controller of the job does not stop them.

The controller of such a kind creates a child as its copy of the job states, which may be older than the
suspension. From the suspension on, the webhook refuses children that are not suspended. So a list that
begins later has all children that can still create pods.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from admitq.controllers.context import Context
from admitq.controllers.indexes import resource_of
from admitq.controllers.plan import Action, ActionPlan, Delete, RecordEvent, plan_of
from admitq.integrations.base import Integration
from admitq.integrations.ownership import is_controlled_by
from admitq.runtime.resources import Resource
from admitq_api.json_objects import JsonObject

NEXT_CHECK_SECONDS: Final = 1.0
"""When to look again whether the deleted children are gone."""


class RunningChild(NamedTuple):
    """A child that is not suspended."""

    resource: Resource
    obj: JsonObject


async def find_running_children(
    ctx: Context, integration: Integration, job: JsonObject | None
) -> Sequence[RunningChild]:
    """Return the children of a suspended job that can still create pods, from a list of the API server.

    There are none if the job runs, or if its controller stops the children itself. Only children of enabled
    kinds are found.

    Raises:
        ApiError: the children cannot be listed. The caller must keep the quota reserved.
    """
    ownership = integration.ownership
    if job is None or not ownership.keeps_children or not integration.is_suspended(job, ctx.names):
        return ()
    running: list[RunningChild] = []
    for kind in ctx.settings.integrations:
        if (kind.group, kind.kind) not in (ownership.created_kinds or ()):
            continue
        resource = resource_of(kind)
        listed, _ = await ctx.client.list(resource, job["metadata"]["namespace"])
        running += (
            RunningChild(resource, obj)
            for obj in listed
            if is_controlled_by(obj, job) and not kind.is_suspended(obj, ctx.names)
        )
    return running


def delete_running_children(children: Sequence[RunningChild], product: str) -> ActionPlan:
    """Return the plan that deletes the children and reports it on each of them."""
    actions: list[Action] = []
    for resource, obj in children:
        if "deletionTimestamp" not in obj["metadata"]:
            note = f"{product} managed child job deleted: its owner is stopped"
            actions += (Delete(resource, obj), RecordEvent(obj, "Normal", "Suspended", note))
    return plan_of(*actions, requeue_after=NEXT_CHECK_SECONDS)
