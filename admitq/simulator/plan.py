"""The plan of a run: the objects at the start, the workloads that arrive, and the changes during the run."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import orjson

from admitq.core.events import Event
from admitq.core.model import ObjectKey, PodSet, Workload
from admitq.core.settings import CoreSettings, Placement
from admitq.integrations.base import Integration
from admitq.manifests.documents import Document, FieldPath, InputError, Place, Problem, field_name, field_path
from admitq.manifests.jobs import JobTranslation
from admitq.manifests.objects import Manifests, ObjectId
from admitq.simulator import arrivals
from admitq.simulator.distributions import Draw, create_random_stream, create_sampler
from admitq.simulator.files import Files, read_files, read_files_beside
from admitq.simulator.nodes import list_nodes
from admitq.simulator.present import RUNNING, WAITING, PresentCluster, PresentWorkload
from admitq.simulator.schema import (
    Evictions,
    Kill,
    Nanoseconds,
    Reference,
    RunTime,
    Scenario,
    Trace,
    WorkloadClass,
)
from admitq.simulator.templates import Template, job_manifest, read_template
from admitq.simulator.traces import REQUESTS, Row, Shape, read_trace
from admitq.translate.read_options import ReadOptions, configured_read_options
from admitq.workloads.host_failures import NodeFailureSettings, configured_node_failures
from admitq.workloads.topology_annotations import (
    DEFAULT_TOPOLOGY_RULES,
    TopologyRules,
    configured_topology_rules,
)
from admitq_api.json_objects import JsonObject, with_value
from admitq_api.labels import Names


class Submission(NamedTuple):
    """A workload that arrives: its time, its template, and the number of pods with each run time.

    A ``present`` workload existed before the run. It keeps its name, and may hold quota already.
    """

    at: Nanoseconds
    template: Template
    work: tuple[tuple[Nanoseconds, int], ...]
    present: Workload | None = None


@dataclass(slots=True, eq=False)
class WorkloadSource:
    """The workloads of one class, in the order of their arrival.

    ``name`` is the name of the class in the report; names of workloads begin with ``prefix``.
    """

    name: str
    prefix: str
    submissions: Iterator[Submission]
    expected: int | None
    ready_after: Draw
    termination: Draw
    checkpoints: Nanoseconds | None
    """The work that an eviction keeps. None: none; 0: all; else the work up to the last full interval."""
    chance: random.Random


@dataclass(slots=True, eq=False)
class SimulationPlan:
    """The plan of a run. It can be run once, because arrivals are drawn during the run."""

    name: str
    description: str
    seed: int
    until: Nanoseconds | None
    settings: CoreSettings
    how: ReadOptions
    names: Names
    start: list[Event]
    """Events of the core before the first arrival."""
    sources: list[WorkloadSource]
    changes: list[tuple[Nanoseconds, Event]]
    """Events of the core during the run, in the order of time."""
    kills: list[Kill]
    checks: Draw
    """Draws the duration of admission checks."""
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    """Numbers of objects that the simulation ignores, by kind."""
    node_failures: NodeFailureSettings | None = None
    """When a host counts as failed; None if pods of failed hosts are not placed elsewhere."""
    common_pods: PodSet | None = None
    """The largest podset of the most frequent kind of workloads, of those with several pods."""

    @property
    def expected(self) -> int | None:
        """The number of workloads that will arrive; None if it is unknown."""
        total = 0
        for source in self.sources:
            if source.expected is None:
                return None
            total += source.expected
        return total


def read(
    paths: Sequence[Path],
    *,
    changed: Sequence[Path] = (),
    seed: int | None = None,
    until: Nanoseconds | None = None,
    present: PresentCluster | None = None,
    revise: Callable[[Scenario], Scenario] | None = None,
) -> SimulationPlan:
    """Return the plan of a run from files.

    Args:
        paths: YAML files; one of them contains the scenario.
        changed: YAML files without a scenario. Their objects replace those of the same name.
        seed: the random seed, instead of the seed of the scenario.
        until: the end of the run, instead of the end in the scenario.
        present: the cluster with which the run begins. Objects of the files replace its objects of the same
            name, and no file need contain a scenario.
        revise: returns the scenario to run instead of that of the files, such as one with other nodes.

    Raises:
        InputError: a file is invalid; the problems have file, line and field.
    """
    files = (
        read_files(paths, changed) if present is None else read_files_beside(present.files, paths, changed)
    )
    if revise is not None:
        files.scenario = revise(files.scenario)
    scenario = files.scenario
    chosen = seed if seed is not None else scenario.seed
    # This random seed is the only input that is not in the files. The report contains it, so that the run can
    # be repeated.
    drawn = chosen if chosen is not None else random.SystemRandom().randrange(2**31)
    settings, how, custom, topology_rules, node_failures = _configured(files)
    manifests = Manifests(files.names, how, custom, with_nodes=True)
    for document in (*files.manifests, *list_nodes(scenario, files.document)):
        manifests.add(document)
    for document in files.changed:
        manifests.apply(document)
    if not _has_nodes(manifests, scenario):
        # Without nodes no pods could be placed: flavors with a topology count by quota alone.
        settings = replace(settings, placement=None)
    start = manifests.observed()
    if present is not None:
        start += present.pods_of_others
    end = until if until is not None else scenario.until
    reader = _Reader(files, manifests, settings, how, topology_rules, drawn, end)
    sources = reader.sources(() if present is None else present.workloads)
    return SimulationPlan(
        name=files.name,
        description=scenario.description,
        seed=drawn,
        until=end,
        settings=settings,
        how=how,
        names=files.names,
        start=start,
        sources=sources,
        changes=reader.changes(),
        kills=list(scenario.kills),
        checks=create_sampler(scenario.admission_checks),
        left_out=dict(manifests.left_out),
        node_failures=node_failures,
        common_pods=reader.common_pods(),
    )


def _has_nodes(manifests: Manifests, scenario: Scenario) -> bool:
    """Whether there are nodes at the start, or later."""
    return any(manifests.of_kind("Node")) or any(
        change.apply is not None and change.apply.get("kind") == "Node" for change in scenario.changes
    )


class _Configured(NamedTuple):
    settings: CoreSettings
    how: ReadOptions = ReadOptions()
    custom: tuple[Integration, ...] = ()
    topology_rules: TopologyRules | None = DEFAULT_TOPOLOGY_RULES
    node_failures: NodeFailureSettings | None = NodeFailureSettings()


def _configured(files: Files) -> _Configured:
    """Return the settings of the configuration file; the defaults without one."""
    document, names = files.configuration, files.names
    if document is None:
        settings = CoreSettings(
            multikueue_controller=names.multikueue_controller,
            provisioning_controller=names.provisioning_controller,
            placement=Placement(),
        )
        return _Configured(settings)
    # The models of the configuration file take long to import, and most scenarios have none.
    from admitq.integrations.custom import load_custom_integrations  # noqa: PLC0415
    from admitq.translate.settings import configured_core_settings  # noqa: PLC0415
    from admitq_api.configuration import ConfigurationError, load_configuration  # noqa: PLC0415

    try:
        configuration = load_configuration(orjson.dumps(document.value).decode())
        gates = configuration.create_feature_gates()
        custom = load_custom_integrations(configuration)
    except ConfigurationError as error:
        raise InputError(_configuration_problem(document, line) for line in error.problems) from None
    if configuration.api_group != names.group:
        raise document.error(("apiGroup",), f"write {names.group}, which the scenario uses")
    return _Configured(
        configured_core_settings(configuration, gates),
        configured_read_options(configuration, gates),
        custom,
        configured_topology_rules(gates),
        configured_node_failures(gates),
    )


def _configuration_problem(document: Document, line: str) -> Problem:
    name, _, remedy = line.partition(": ")
    path = field_path(name)
    if " " in name or not path:
        return document.problem((), line)
    return document.problem(path, remedy)


# --- arrivals ---------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Reader:
    files: Files
    manifests: Manifests
    settings: CoreSettings
    how: ReadOptions
    topology_rules: TopologyRules | None
    seed: int
    until: Nanoseconds | None
    _translation: JobTranslation = field(init=False)
    _queues: list[ObjectKey] = field(init=False)
    _frequencies: dict[PodSet, float] = field(default_factory=dict[PodSet, float])
    """How many workloads have each podset as their largest one."""

    def __post_init__(self) -> None:
        self._translation = JobTranslation(
            self.files.names,
            self.manifests.integration_of,
            self.manifests,
            self.manifests.referenced,
            self.how,
            partial_admission=self.settings.gates.partial_admission,
            topology_rules=self.topology_rules,
        )
        self._queues = [
            ObjectKey(name.namespace, name.name) for name, _ in self.manifests.of_kind("LocalQueue")
        ]

    @property
    def _scenario(self) -> Scenario:
        return self.files.scenario

    @property
    def _spec(self) -> Document:
        return self.files.document

    def sources(self, present: Sequence[PresentWorkload] = ()) -> list[WorkloadSource]:
        """Return the sources of present workloads, classes with their queues, traces, and manifests."""
        sources = self._present(present)
        referred: set[ObjectId] = set()
        for index, workload_class in enumerate(self._scenario.workloads):
            if workload_class.template is not None:
                referred.add(_id_of(workload_class.template))
            sources.extend(self._class(workload_class, ("workloads", index)))
        for index, trace in enumerate(self._scenario.traces):
            sources.append(self._trace(trace, ("traces", index)))
        for name, document in self.manifests.workloads():
            if name not in referred:
                sources.append(self._manifest(name, document))
        if not sources:
            raise self._spec.error(
                ("workloads",), "no workload is ever submitted: add a class, a trace or a Job"
            )
        return sources

    def common_pods(self) -> PodSet | None:
        """Return the largest podset of the most frequent kind of workloads, of those with several pods."""
        frequencies = self._frequencies
        several = {pods: count for pods, count in frequencies.items() if pods.count > 1}
        return max(several or frequencies, key=frequencies.__getitem__, default=None)

    def _count(self, template: Template, workloads: float = 1.0) -> None:
        pods = max(template.workload.pod_sets, key=lambda pod_set: pod_set.count, default=None)
        if pods is not None:
            self._frequencies[pods] = self._frequencies.get(pods, 0.0) + workloads

    def _present(self, workloads: Sequence[PresentWorkload]) -> list[WorkloadSource]:
        """Return the workloads that exist at the start as two classes: those with quota come first."""
        classes: dict[str, list[Submission]] = {RUNNING: [], WAITING: []}
        for each in workloads:
            workload = each.workload
            chance = create_random_stream(self.seed, str(workload.key), "run times")
            template = Template(workload, self.files.names)
            self._count(template)
            work = ((each.draw_run_time(chance), template.pods),)
            name = WAITING if workload.admission is None else RUNNING
            classes[name].append(Submission(0, template, work, workload))
        return [
            self._source(
                name,
                name,
                iter(submissions),
                len(submissions),
                WorkloadClass.model_construct(pods_ready_after=None, evictions=None),
                create_random_stream(self.seed, name, "course"),
            )
            for name, submissions in classes.items()
            if submissions
        ]

    def changes(self) -> list[tuple[Nanoseconds, Event]]:
        """Return the events of the changes, in the order of time. Each includes all earlier changes."""
        ordered = sorted(enumerate(self._scenario.changes), key=lambda pair: pair[1].at)
        return [(change.at, self._change(index)) for index, change in ordered]

    def _change(self, index: int) -> Event:
        change = self._scenario.changes[index]
        raw = self._spec.value["changes"][index]

        def part(field_of: str) -> Document:
            return self._spec.within(("changes", index, field_of), raw[field_of])

        if change.patch is not None:
            named = ObjectId(change.patch.kind, change.patch.namespace, change.patch.name)
            return self.manifests.patched(named, change.patch.patch, part("patch"))
        if change.delete is not None:
            named = ObjectId(change.delete.kind, change.delete.namespace, change.delete.name)
            return self.manifests.remove(named, part("delete"))
        return self.manifests.replace(part("apply"))

    # --- classes ----------------------------------------------------------------------------------

    def _class(self, workload_class: WorkloadClass, path: FieldPath) -> Iterator[WorkloadSource]:
        run_time = workload_class.run_time or self._scenario.run_time
        if run_time is None:
            raise self._spec.error(path, "runTime is required, here or for the whole scenario")
        queues = self._queues_of(workload_class, path)
        for queue in queues:
            template = self._template(workload_class, queue, path)
            self._count(template, arrivals.estimate(workload_class.arrivals, self.until))
            prefix = (
                workload_class.name
                if len(queues) == 1
                else f"{workload_class.name}-{queue.namespace}-{queue.name}"
            )
            chances = [
                create_random_stream(self.seed, prefix, purpose)
                for purpose in ("arrivals", "run times", "course")
            ]
            yield self._source(
                workload_class.name,
                prefix,
                _of_class(
                    arrivals.times(workload_class.arrivals, chances[0]), template, run_time, chances[1]
                ),
                arrivals.expected(workload_class.arrivals),
                workload_class,
                chances[2],
            )

    def _queues_of(self, workload_class: WorkloadClass, path: FieldPath) -> list[ObjectKey]:
        if workload_class.queue is None:
            document = self._referred(workload_class, path)
            namespace = document.value["metadata"].get("namespace", "default")
            workload = read_template(
                self._translation,
                with_value(document.value, ("metadata", "namespace"), namespace),
                document.error,
            ).workload
            return [self._known(ObjectKey(namespace, workload.queue_name), document, ("metadata", "labels"))]
        pattern = workload_class.queue if "/" in workload_class.queue else f"default/{workload_class.queue}"
        matching = [queue for queue in self._queues if fnmatchcase(str(queue), pattern)]
        if not matching:
            known = ", ".join(map(str, self._queues[:8])) or "none"
            raise self._spec.error(
                (*path, "queue"),
                f"{workload_class.queue}: no such LocalQueue in the manifests, which have {known}",
            )
        return matching

    def _known(self, queue: ObjectKey, document: Document, path: FieldPath) -> ObjectKey:
        if queue not in self._queues:
            raise document.error(path, f"LocalQueue {queue} is not among the manifests")
        return queue

    def _referred(self, workload_class: WorkloadClass, path: FieldPath) -> Document:
        assert workload_class.template is not None  # noqa: S101 called only for classes with a template
        document = self.manifests.get(_id_of(workload_class.template))
        if document is None:
            raise self._spec.error(
                (*path, "template"), f"there is no {_id_of(workload_class.template)} in the manifests"
            )
        return document

    def _template(self, workload_class: WorkloadClass, queue: ObjectKey, path: FieldPath) -> Template:
        if workload_class.template is None:
            job = job_manifest(
                self.files.names,
                queue,
                name=workload_class.name,
                pods=workload_class.pods or 1,
                requests=(workload_class.requests or {}).items(),
                priority_class=workload_class.priority_class or "",
                min_pods=workload_class.min_pods,
                topology_request=workload_class.topology_request,
            )

            def blame(inner: FieldPath, remedy: str) -> Exception:
                return self._spec.error((*path, *_in_class(inner)), remedy)

            return read_template(self._translation, job, blame)
        document = self._referred(workload_class, path)
        job = _placed(document.value, queue, workload_class.priority_class, self.files.names)
        return read_template(self._translation, job, document.error)

    def _manifest(self, name: ObjectId, document: Document) -> WorkloadSource:
        run_time = self._scenario.run_time
        if run_time is None:
            raise document.error(
                (),
                f"{name}: its run time is not set: set runTime of the scenario, or refer to it in workloads",
            )
        obj = with_value(document.value, ("metadata", "namespace"), name.namespace)
        template = read_template(self._translation, obj, document.error)
        self._known(ObjectKey(name.namespace, template.workload.queue_name), document, ("metadata", "labels"))
        self._count(template)
        chance = create_random_stream(self.seed, str(name), "run times")
        return self._source(
            name.name,
            name.name,
            _of_class(iter((0,)), template, run_time, chance),
            1,
            WorkloadClass.model_construct(pods_ready_after=None, evictions=None),
            create_random_stream(self.seed, str(name), "course"),
        )

    def _source(
        self,
        name: str,
        prefix: str,
        submissions: Iterator[Submission],
        expected: int | None,
        own: WorkloadClass | Trace,
        chance: random.Random,
    ) -> WorkloadSource:
        evictions: Evictions = own.evictions or self._scenario.evictions
        return WorkloadSource(
            name,
            prefix,
            submissions,
            expected,
            create_sampler(own.pods_ready_after or self._scenario.pods_ready_after),
            create_sampler(evictions.termination),
            evictions.checkpoints,
            chance,
        )

    # --- traces -----------------------------------------------------------------------------------

    def _trace(self, trace: Trace, path: FieldPath) -> WorkloadSource:
        file = self.files.folder / trace.file
        recorded = read_trace(trace, file, str(file))
        if not recorded.rows:
            raise self._spec.error((*path, "file"), f"{file} has no job that ran")
        if recorded.left_out:
            self.manifests.left_out[f"jobs of {trace.file} that never ran"] += recorded.left_out
        # Every row is translated before the run, so that unknown queues are reported before it.
        templates = _RowTemplates(self, trace, str(file))
        for row in recorded.rows:
            self._count(templates.of(row))
        return self._source(
            trace.name,
            trace.name,
            _of_trace(recorded.rows, templates),
            len(recorded.rows),
            trace,
            create_random_stream(self.seed, trace.name, "course"),
        )

    def row_template(self, row: Row, queue: ObjectKey, trace: Trace, shown: str) -> Template:
        """Return the template of a row of a trace."""

        def problem(name: str, remedy: str) -> InputError:
            return InputError([Problem(Place(shown, row.line), name, remedy)])

        if queue not in self._queues:
            raise problem("queue", f"LocalQueue {queue} is not among the manifests")
        shape = row.shape
        number = shape.priority.lstrip("-").isdecimal()
        job = job_manifest(
            self.files.names,
            queue,
            name=trace.name,
            pods=shape.pods,
            requests=shape.requests,
            priority_class="" if number else shape.priority,
            topology_request=trace.topology_request,
        )

        def blame(inner: FieldPath, remedy: str) -> Exception:
            if inner[-2:-1] == ("requests",):
                return problem(f"{REQUESTS}{inner[-1]}", remedy)
            return problem("priority" if "labels" in inner else field_name(inner), remedy)

        template = read_template(self._translation, job, blame)
        if number:
            template.workload = replace(template.workload, priority=int(shape.priority))
        return template


def _id_of(reference: Reference) -> ObjectId:
    return ObjectId(reference.kind, reference.namespace, reference.name)


def _in_class(path: FieldPath) -> FieldPath:
    """Return the field of a class that determines a field of its Job."""
    if "requests" in path:
        return path[path.index("requests") :]
    return ("priorityClass",) if "labels" in path else ()


def _placed(obj: JsonObject, queue: ObjectKey, priority_class: str | None, names: Names) -> JsonObject:
    """Return a Job or Workload with another queue and priority class."""
    placed = with_value(obj, ("metadata", "namespace"), queue.namespace)
    if (obj.get("apiVersion"), obj.get("kind")) == (names.api_version, "Workload"):
        return with_value(placed, ("spec", "queueName"), queue.name)
    placed = with_value(placed, ("metadata", "labels", names.queue_name), queue.name)
    if priority_class is None:
        return placed
    return with_value(placed, ("metadata", "labels", names.priority_class), priority_class)


def _of_class(
    times: Iterator[Nanoseconds], template: Template, run_time: RunTime, chance: random.Random
) -> Iterator[Submission]:
    draw = create_sampler(run_time)
    completions = template.running(template.pods).completions
    if run_time.per == "Workload" or completions == 1:
        for at in times:
            yield Submission(at, template, ((draw(chance), completions),))
        return
    for at in times:
        yield Submission(at, template, tuple((draw(chance), 1) for _ in range(completions)))


def _of_trace(rows: Sequence[Row], templates: "_RowTemplates") -> Iterator[Submission]:
    for row in rows:
        yield Submission(row.submitted, templates.of(row), ((row.run_time, row.shape.pods),))


@dataclass(slots=True, eq=False)
class _RowTemplates:
    """The templates of the rows of a trace; rows with the same request share one."""

    reader: _Reader
    trace: Trace
    shown: str
    _known: dict[Shape, Template] = field(default_factory=dict[Shape, Template])

    def of(self, row: Row) -> Template:
        """Return the template of a row."""
        template = self._known.get(row.shape)
        if template is None:
            namespace, _, name = row.shape.queue.rpartition("/")
            queue = ObjectKey(namespace or "default", name)
            template = self._known[row.shape] = self.reader.row_template(row, queue, self.trace, self.shown)
        return template
