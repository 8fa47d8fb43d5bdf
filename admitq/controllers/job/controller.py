"""The shell around the decisions about jobs: gathers what is known, carries out what is decided."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Final, NamedTuple

from admitq.controllers.context import Context
from admitq.controllers.current_workloads import BEHIND_RETRY_SECONDS, observe_newer_workloads
from admitq.controllers.indexes import (
    BY_GROUP,
    BY_OWNER,
    group_key,
    in_namespace,
    named_group,
    owner_value,
    resource_followed,
    resource_of,
    strangers_in,
)
from admitq.controllers.job import members
from admitq.controllers.job.case import CONCERN, Ancestor, JobCase
from admitq.controllers.job.delays import next_look_at
from admitq.controllers.job.looking_up import is_unsettled, lookups_in
from admitq.controllers.job.matching import is_equivalent
from admitq.controllers.job.one_workload import without_outdated
from admitq.controllers.job.owners import Owners
from admitq.controllers.job.slices import is_elastic, lets_run
from admitq.controllers.job.steps import decide, refuse_group
from admitq.controllers.outliving_pods import OutlivingPods
from admitq.controllers.plan import (
    Action,
    Count,
    Create,
    Delete,
    Patch,
    Plan,
    Tell,
    act,
    describes_pods,
    plan,
    status_patch,
)
from admitq.core.selectors import selects_namespace
from admitq.integrations.base import (
    Composition,
    Difference,
    Integration,
    Moment,
    OwnerKind,
    Reference,
    members_of,
)
from admitq.integrations.ownership import (
    Ancestry,
    NestedTooDeep,
    OwnerMissing,
    controller_of,
    is_controlled_by,
    is_of_group,
    is_served,
    queue_name,
)
from admitq.integrations.paths import Object, value_at
from admitq.job_workloads import Unfit
from admitq.runtime.errors import ApiError, PermanentlyRefused
from admitq.runtime.rate_limit import CallPriority, call_priority
from admitq.runtime.resources import NAMESPACES, Resource
from admitq.runtime.store import Key, Store
from admitq.transitions import Transition, holds, is_admitted, is_reserved
from admitq_api.conditions import ConditionType, Reason

ORPHAN_RETRY_SECONDS: Final = 5.0
STOP_REFUSED: Final = "StopRefused"
"""The event about a job that cannot be stopped: a webhook or a policy refuses the write."""
STOP_ATTEMPTS: Final = 4
"""How often the stop of a job that runs more than was admitted is written before it waits for its watch."""


class _Granted(NamedTuple):
    """The generation of a job in which it matched its one Workload, while that was admitted."""

    uid: str
    generation: int
    workload_uid: str


class Presence(Enum):
    """What the API server has of a job that is not in the store."""

    ABSENT = auto()
    PRESENT = auto()
    """The store is behind."""
    UNMANAGED = auto()
    """The owner exists and is not queued; another program may label it later. Its Workloads are kept."""


class JobController:
    """Works on the jobs of one kind.

    ``reconcile`` is what the queue of keys calls; ``start`` is the same, called right after an admission was
    written, without a detour through the queue. A job is never worked on by both at once.
    """

    def __init__(self, ctx: Context, integration: Integration, owners: Owners) -> None:
        self.integration = integration
        self.resource = resource_of(integration)
        self._ctx = ctx
        self._owners = owners
        self._ancestry = Ancestry(
            self._owners.find,
            ctx.settings.integrations,
            ctx.names,
            without_queue_name=ctx.settings.without_queue_name,
            external=ctx.settings.external_frameworks,
            elastic_jobs=ctx.settings.elastic_jobs,
            resolve=self._owners.resolved,
            read_again=self._owners.read,
        )
        self._outliving = OutlivingPods(ctx)
        self._followed: Mapping[OwnerKind, Resource] = {
            one.kind: resource_followed(integration, one) for one in integration.follows
        }
        self._busy: set[Key] = set()
        self._granted: dict[Key, _Granted] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Bring one job forward; returns in how many seconds to look again.

        Raises:
            ApiError: a write failed.
            PermanentlyRefused: no Workload can stand for the job until it changes.
        """
        if key in self._busy:
            # It is being started; what is written then brings the key back. This is for when nothing is.
            return BEHIND_RETRY_SECONDS
        return await self._work_on(key)

    async def start(self, workload: Object) -> None:
        """Bring the job of a just admitted Workload forward, which starts it.

        Raises:
            ApiError: a write failed; the queue of keys will try again.
        """
        key = self.key_of(workload)
        if key is not None and key not in self._busy:
            # The queue of keys quarantines a job whose refusal is reported here.
            with suppress(PermanentlyRefused), call_priority(CallPriority.RESERVATION):
                await self._work_on(key)

    def key_of(self, workload: Object) -> Key | None:
        """The job of this kind that a Workload stands for; None if it stands for another."""
        metadata = workload["metadata"]
        reference = controller_of(workload)
        if reference is None:
            of_group = self.integration.composition is not None and is_of_group(workload, self._ctx.names)
            return Key(metadata["namespace"], group_key(metadata["name"])) if of_group else None
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        if (group, version, reference.get("kind")) != self.integration.gvk:
            return None
        return Key(metadata["namespace"], str(reference.get("name", "")))

    async def _work_on(self, key: Key) -> float | None:
        self._busy.add(key)
        try:
            return await self._bring_forward(key)
        finally:
            self._busy.discard(key)

    async def _bring_forward(self, key: Key, attempts: int = STOP_ATTEMPTS) -> float | None:
        store = self._ctx.stores.find(self.resource)
        if store is None:
            # The kind is not served any more; its Workloads stay as they are until it is again.
            return None
        strangers = self._strangers(key, store)
        job = self._job(key, store, strangers)
        workloads = self._workloads_of(key, job)
        if strangers:
            await self._refuse(key, strangers)
        if job is None:
            self._granted.pop(key, None)
            workloads = tuple(one for one in workloads if not self._is_kept_for_pods(one))
            if not any(is_unsettled(one, self._ctx.names) for one in workloads):
                return None
            match await self._presence(key, workloads):
                case Presence.PRESENT:
                    return BEHIND_RETRY_SECONDS
                case Presence.UNMANAGED:
                    return None
                case Presence.ABSENT:
                    pass
        ancestor: Ancestor | None = None
        namespace = self._ctx.stores.of(NAMESPACES).get("", key.namespace)
        if job is not None:
            if namespace is None:
                return BEHIND_RETRY_SECONDS
            try:
                if not workloads and await self._follows_ancestor(job):
                    return None
                ancestor = await self._ancestor_of(job)
            except OwnerMissing:
                return ORPHAN_RETRY_SECONDS
            except NestedTooDeep as error:
                self._ctx.recorder.event(dict(job), "Warning", "JobNestingTooDeep", str(error))
                return None
        case = JobCase(
            integration=self.integration,
            names=self._ctx.names,
            kinds=self._ctx.kinds,
            settings=self._ctx.settings,
            now=self._ctx.clock(),
            job=job,
            workloads=workloads,
            lookups=lookups_in(self._ctx, key.namespace),
            namespace_matches=self._is_selected(namespace),
            namespace_ends=value_at(namespace, ("metadata", "deletionTimestamp")) is not None,
            ancestor=ancestor,
        )
        case = await self._with_outliving_pods(self._resolved(case))
        case, decided = await self._decide(case)
        if decided.unless_admitted and decided.actions:
            again = await self._stop(key, case, decided, attempts)
        else:
            self._remember_grant(key, case)
            again = await self._act(case, decided)
        return next_look_at(case, again)

    async def _stop(self, key: Key, case: JobCase, decided: Plan, attempts: int) -> float | None:
        """Stop a job that runs more than was admitted, ahead of all that is less urgent.

        The controller of the job writes the job often while pods start. What it has written is read at once,
        for the watch may be late.
        """
        with call_priority(CallPriority.AHEAD):
            if not self._has_changed_since_granted(key, case) and await self._is_behind(case):
                return BEHIND_RETRY_SECONDS
            try:
                return await self._act(case, decided)
            except ApiError as error:
                if not error.is_conflict or self.integration.composition is not None or attempts <= 1:
                    raise
            fresh = await self._ctx.client.get(self.resource, key.name, namespace=key.namespace)
            self._ctx.observed(self.resource, fresh)
            return await self._bring_forward(key, attempts - 1)

    def _remember_grant(self, key: Key, case: JobCase) -> None:
        """Remember in which generation a running job was last seen to match its admitted Workload."""
        seen = _running_generation(case)
        known = self._granted.get(key)
        if seen is None or len(case.owned) != 1 or not is_admitted(case.owned[0]):
            self._granted.pop(key, None)
            return
        granted = _Granted(*seen, case.owned[0]["metadata"]["uid"])
        if granted != known and is_equivalent(case, case.owned[0]):
            self._granted[key] = granted

    def _has_changed_since_granted(self, key: Key, case: JobCase) -> bool:
        """Whether the one change of a job since it matched its Workload is what it is stopped for.

        A job that is stopped and started again changes at least twice. So no other Workload can be admitted
        for this one, and the API server need not be asked.
        """
        seen, known = _running_generation(case), self._granted.get(key)
        if seen is None or known is None or len(case.owned) != 1:
            return False
        uid, generation = seen
        return known == _Granted(uid, generation - 1, case.owned[0]["metadata"]["uid"])

    # --- gathering --------------------------------------------------------------------------------

    def _job(self, key: Key, store: Store, strangers: Sequence[Object]) -> Object | None:
        """The job, put together if it has to be, without members that only claim to belong to it."""
        composition = self.integration.composition
        if composition is None:
            return store.get(key.namespace, key.name)
        group = named_group(key.name)
        found = (
            store.by_index(BY_GROUP, in_namespace(key.namespace, group))
            if group
            else (store.get(key.namespace, key.name),)
        )
        refused = {one["metadata"].get("uid") for one in strangers}
        present = [one for one in found if one is not None and one["metadata"].get("uid") not in refused]
        return self._composed(composition, present, group)

    def _strangers(self, key: Key, store: Store) -> Sequence[Object]:
        """Members that name the Workload of an object that serves as their group, and are not its pods."""
        group = named_group(key.name)
        workload = self._ctx.stores.of(self._ctx.kinds.workloads).get(key.namespace, group) if group else None
        if workload is None or not is_served(workload, self._ctx.names):
            return ()
        found = store.by_index(BY_GROUP, in_namespace(key.namespace, group))
        return strangers_in(workload, found, self._ctx.names, self._ctx.settings.integrations)

    async def _refuse(self, key: Key, strangers: Sequence[Object]) -> None:
        """Keep members from running that name a Workload that is not theirs."""
        composition, ctx = self.integration.composition, self._ctx
        job = composition and self._composed(composition, strangers, named_group(key.name))
        if not job:
            return
        case = JobCase(
            integration=self.integration,
            names=ctx.names,
            kinds=ctx.kinds,
            settings=ctx.settings,
            now=ctx.clock(),
            job=job,
            workloads=(),
            lookups=lookups_in(ctx, key.namespace),
        )
        await self._act(case, refuse_group(case))

    def _composed(self, composition: Composition, found: Sequence[Object], group: str) -> Object | None:
        names, settings = self._ctx.names, self._ctx.settings
        present = [one for one in found if self._is_member(one) and composition.group_of(one, names) == group]
        if not present:
            return None
        moment = Moment(self._ctx.clock(), deleted_hold_nothing=settings.pods.fast_quota_release)
        return composition.compose(present, names, moment)

    def _is_member(self, obj: Object) -> bool:
        composition, names = self.integration.composition, self._ctx.names
        return (
            composition is not None
            and self.integration.owns_up_to(obj, names)
            and composition.is_member(obj, names)
        )

    def _workloads_of(self, key: Key, job: Object | None) -> tuple[Object, ...]:
        if group := named_group(key.name):
            found = self._ctx.stores.of(self._ctx.kinds.workloads).get(key.namespace, group)
            mine = members.workload_of(
                job or {},
                found,
                self._ctx.names,
                validate=self._ctx.settings.pods.validate_group_owner,
                by_annotation=self._ctx.settings.names_by_annotation,
            )
            return () if mine is None else (mine,)
        owner = owner_value(self.integration.group, self.integration.kind, key.namespace, key.name)
        return self._ctx.stores.of(self._ctx.kinds.workloads).by_index(BY_OWNER, owner)

    def _is_kept_for_pods(self, workload: Object) -> bool:
        """Whether a Workload was created before its pods, and nothing is left to do until they exist.

        The controller that serves the pods settles its Workloads itself.
        """
        names = self._ctx.names
        return is_served(workload, names) or (
            members.awaits_first(workload, names) and not members.is_evicted_before_first(workload, names)
        )

    async def _presence(self, key: Key, workloads: Sequence[Object]) -> Presence:
        """Whether a job that is not in the store exists.

        After a start the store of jobs may be older than that of Workloads. Finishing a Workload cannot be
        undone, so the API server is asked first.
        """
        try:
            if named_group(key.name):
                return Presence.ABSENT if await self._has_no_members(key) else Presence.PRESENT
            found = await self._ctx.client.get(self.resource, key.name, namespace=key.namespace)
        except ApiError as error:
            if error.is_not_found:
                return Presence.ABSENT if error.tells_of(key.name) else Presence.PRESENT
            raise
        if self.integration.composition is None or self._is_member(found):
            return Presence.PRESENT
        kept = [one for one in workloads if "deletionTimestamp" not in one["metadata"]]
        return Presence.UNMANAGED if any(is_controlled_by(one, found) for one in kept) else Presence.ABSENT

    async def _has_no_members(self, key: Key) -> bool:
        selector = self.integration.watched_labels
        listed, _ = await self._ctx.client.list(
            self.resource,
            key.namespace,
            label_selector=selector(self._ctx.names) if selector is not None else None,
        )
        composition = self.integration.composition
        return composition is None or self._composed(composition, listed, named_group(key.name)) is None

    async def _is_behind(self, case: JobCase) -> bool:
        """Whether the API server has Workloads of the job that are not known as they are.

        The store of jobs may be newer than that of Workloads, and show what another leader, of before or of
        the same time, started upon an admission that has not come to us. What is ended then cannot be brought
        back, so before anything is ended for want of an admission, the API server is asked.
        """
        return observe_newer_workloads(self._ctx, await self._current_workloads(case))

    async def _current_workloads(self, case: JobCase) -> Sequence[Object]:
        metadata: Object = (case.job or {})["metadata"]
        resource, namespace = self._ctx.kinds.workloads, metadata["namespace"]
        if (held := _only_reserved(case)) is not None:
            # Nothing else is admitted for the job while this Workload is as it is known. A list costs more.
            try:
                return [await self._ctx.client.get(resource, held, namespace=namespace)]
            except ApiError as error:
                if not error.is_not_found:
                    raise
        if not case.group:
            selector = f"{self._ctx.names.job_uid}={metadata['uid']}"
            found, _ = await self._ctx.client.list(resource, namespace, label_selector=selector)
            return found
        try:
            return [await self._ctx.client.get(resource, case.group, namespace=namespace)]
        except ApiError as error:
            if error.is_not_found:
                return []
            raise

    def _is_selected(self, namespace: Object | None) -> bool:
        labels = value_at(namespace, ("metadata", "labels"), {})
        return selects_namespace(self._ctx.settings.namespace_selector, labels)

    async def _ancestor_of(self, job: Object) -> Ancestor | None:
        """The job that is queued in this one's stead, or whose grant this one exceeds.

        What claims such an owner and differs is queued for itself. Without a queue it is stopped if it has
        more pods than its owner was charged for.
        """
        # The webhook has looked up the ancestors of a member when it was created.
        if controller_of(job) is None or self.integration.composition is not None:
            return None
        found = await self._ancestry.of(job)
        if found.ancestor is not None:
            return self._as_ancestor(found.ancestor)
        is_queued = self._ctx.settings.without_queue_name or bool(queue_name(job, self._ctx.names))
        if found.claimed is None or found.difference is not Difference.PODS or is_queued:
            return None
        return Ancestor(found.claimed, admitted=False, difference=found.difference)

    async def _follows_ancestor(self, job: Object) -> bool:
        """Whether a member that the webhook has not seen belongs to a job that is queued.

        The pod template of a queued job may carry the managed label. Its pods run with that job.
        """
        composition, names = self.integration.composition, self._ctx.names
        if composition is None:
            return False
        for member in members_of(job):
            if composition.is_screened(member, names) or controller_of(member) is None:
                continue
            if (await self._ancestry.of(member)).ancestor is not None:
                return True
        return False

    def _resolved(self, case: JobCase) -> JobCase:
        """The same with what the job's pods follow from besides, as far as that is there."""
        if case.job is None:
            return case
        counted = is_elastic(case)
        references = [
            one for one in self.integration.references(case.job) if counted or self.integration.requires(one)
        ]
        found = {one: obj for one in references if (obj := self._referenced(one, case.job)) is not None}
        missing = tuple(one for one in references if one not in found)
        return replace(case, job=self.integration.resolved(case.job, found), missing=missing)

    async def _decide(self, case: JobCase) -> tuple[JobCase, Plan]:
        """What is to be done about a job; quota is freed only where no pods of the job are found."""
        decided = decide(case)
        if not decided.frees or not (found := await self._outliving.of(decided.frees)):
            return case, decided
        case = replace(case, outliving={**case.outliving, **found})
        return case, decide(case)

    async def _with_outliving_pods(self, case: JobCase) -> JobCase:
        """The same with pods that outlive the job; of a group, those that are not known as its members."""
        if case.composition is not None and case.job is not None:
            return case
        return replace(case, outliving=await self._outliving.of_gone(case.without_job, case.job))

    def _referenced(self, reference: Reference, job: Object) -> Object | None:
        resource = self._followed.get(reference.kind)
        store = None if resource is None else self._ctx.stores.find(resource)
        found = None if store is None else store.get(reference.namespace, reference.name)
        if found is None or self.integration.requires(reference):
            return found
        # A status may name anything: what was made for another job says nothing of this one.
        return found if is_controlled_by(found, job) else None

    def _as_ancestor(self, ancestor: Object) -> Ancestor:
        metadata = ancestor["metadata"]
        group, _, _ = str(ancestor.get("apiVersion", "")).rpartition("/")
        owner = owner_value(group, ancestor.get("kind", ""), metadata["namespace"], metadata["name"])
        unfinished = [
            one
            for one in self._ctx.stores.of(self._ctx.kinds.workloads).by_index(BY_OWNER, owner)
            if is_controlled_by(one, ancestor) and not holds(one, ConditionType.FINISHED)
        ]
        annotation = value_at(ancestor, ("metadata", "annotations", self._ctx.names.elastic_job))
        is_elastic = self._ctx.settings.elastic_jobs and annotation == "true"
        return Ancestor(
            ancestor,
            admitted=lets_run(unfinished, elastic=is_elastic),
            holds_quota=any(is_reserved(one) for one in unfinished),
        )

    # --- acting -----------------------------------------------------------------------------------

    async def _act(self, case: JobCase, decided: Plan) -> float | None:
        try:
            again = await act(self._ctx, decided)
        except ApiError as error:
            if error.is_already_exists:
                return await self._take_existing(case, decided)
            if not error.is_refused or case.job is None:
                raise
            if describes_pods(decided, self._ctx.kinds.workloads):
                if error.is_of_ending_namespace:
                    return None
                self._ctx.recorder.event(dict(case.objects[0]), "Warning", Unfit.reason, error.message)
                await act(self._ctx, without_outdated(case, decided))
                if error.is_invalid:
                    # The API server refuses the same podsets again; the owner of the job has to change it.
                    raise PermanentlyRefused(error.message) from error
            elif error.is_invalid and decided.starts is not None:
                return await act(self._ctx, self._failed_to_start(case, decided.starts, error))
            elif error.is_forbidden and _changes_only(case.resource, decided):
                reason = STOP_REFUSED if decided.starts is None else Unfit.reason
                self._ctx.recorder.event(dict(case.objects[0]), "Warning", reason, error.message)
            raise
        if decided.refusal:
            raise PermanentlyRefused(decided.refusal)
        return again

    async def _take_existing(self, case: JobCase, decided: Plan) -> float | None:
        """Our name is taken: by our own earlier write, which we had not seen, or by a stranger."""
        for action in decided.actions:
            if isinstance(action, Create) and case.job is not None:
                metadata = action.obj["metadata"]
                found = await self._ctx.client.get(
                    action.resource, metadata["name"], namespace=metadata["namespace"]
                )
                if case.group or is_controlled_by(found, case.job):
                    self._ctx.observed(action.resource, found)
                    return BEHIND_RETRY_SECONDS
                note = f"Workload {metadata['name']} exists already and belongs to something else"
                self._ctx.recorder.event(dict(case.job), "Warning", "ErrWorkloadCompose", note)
        return ORPHAN_RETRY_SECONDS

    def _failed_to_start(self, case: JobCase, workload: Object, error: ApiError) -> Plan:
        """A start that the API server refuses for what it says would be refused for ever, and hold quota."""
        transition = Transition(workload, case.now)
        transition.finish(Reason.FAILED_TO_START, error.message)
        return plan(status_patch(self._ctx.kinds.workloads, workload, transition.patch(), CONCERN))


def _changes_only(jobs: Resource, decided: Plan) -> bool:
    """Whether a plan starts or stops a job and writes nothing else."""
    return all(isinstance(one, Tell | Count) or _is_change(one, jobs) for one in decided.actions)


def _is_change(action: Action, jobs: Resource) -> bool:
    return isinstance(action, Patch | Delete) and action.resource == jobs


def _running_generation(case: JobCase) -> tuple[str, int] | None:
    """The UID and the generation of a job that is one object and is not suspended; None for others."""
    if case.job is None or case.composition is not None:
        return None
    metadata, generation = case.job["metadata"], value_at(case.job, ("metadata", "generation"))
    if not isinstance(generation, int) or case.integration.is_suspended(case.job, case.names):
        return None
    return metadata["uid"], generation


def _only_reserved(case: JobCase) -> str | None:
    """The name of the one Workload of a job, if it has quota."""
    [*names] = (one["metadata"]["name"] for one in case.owned if is_reserved(one))
    return names[0] if len(names) == len(case.owned) == 1 and not case.group else None


async def start_admitted(controllers: Mapping[OwnerKind, JobController], workload: Object) -> None:
    """Start the job of a Workload whose admission was just written; the same code as reconciling the job.

    Raises:
        ApiError: a write failed; the job's controller sees an admitted Workload and tries again.
    """
    for controller in controllers.values():
        await controller.start(workload)
