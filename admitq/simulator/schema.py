"""The scenario file: which workloads arrive, how long they run, and what changes during the run.

``Scenario`` is the root. The file has durations as in Kubernetes ("90s", "1h30m"), the models nanoseconds.
docs/reference/scenario.md is generated from these classes.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from admitq.core.topology.domains import HOST_NAME
from admitq_api.durations import parse_duration

KIND = "Scenario"
"""The kind of scenario documents."""

Nanoseconds = int


def nanoseconds(text: object) -> Nanoseconds:
    """Return the length of a duration such as "1h30m".

    Raises:
        ValueError: the text is not a duration, or the duration is negative.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a duration: write a number with its unit, like 90s or 1h30m")  # noqa: TRY004 pydantic takes ValueError
    duration = parse_duration(text) // timedelta(microseconds=1) * 1000
    if duration < 0:
        raise ValueError(f"{text!r} is negative: a duration is 0s or longer")
    return duration


def _positive(duration: Nanoseconds) -> Nanoseconds:
    if not duration:
        raise ValueError("must be longer than 0s")
    return duration


Duration = Annotated[Nanoseconds, BeforeValidator(nanoseconds)]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
Count = Annotated[int, Field(ge=1)]


def _exactly_one(part: BaseModel, fields: tuple[str, ...]) -> None:
    set_fields = [field for field in fields if getattr(part, field) is not None]
    if len(set_fields) != 1:
        names = ", ".join(to_camel(field) for field in fields)
        raise ValueError(f"set exactly one of {names}" + (f", not {len(set_fields)}" if set_fields else ""))


class ScenarioPart(BaseModel):
    """A part of the scenario: frozen, camelCase in the file, without unknown fields."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        # Parts are parsed only within a whole scenario.
        defer_build=True,
    )

    short_form: ClassVar[str] = ""
    """The field that a plain string sets."""

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, value: Any) -> Any:
        return {cls.short_form: value} if cls.short_form and isinstance(value, str) else value


# --- distributions ---------------------------------------------------------------------------------


class Uniform(ScenarioPart):
    """All durations between two bounds, equally likely."""

    min: Duration
    """The shortest duration."""

    max: Duration
    """The longest duration."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError("max must not be shorter than min")
        return self


class Exponential(ScenarioPart):
    """Many short durations and few long ones."""

    mean: PositiveDuration
    """The mean duration."""


class Lognormal(ScenarioPart):
    """A peak and a long tail, as run times of batch jobs often have."""

    median: PositiveDuration
    """The duration that half of the draws stay below."""

    sigma: Annotated[float, Field(gt=0, le=10)]
    """The standard deviation of the logarithm: a larger value gives a longer tail."""


class Weibull(ScenarioPart):
    """Shape below 1: a long tail. Shape 1: exponential. Shape above 1: a peak near the scale."""

    scale: PositiveDuration
    """The duration that 63 % of the draws stay below."""

    shape: Annotated[float, Field(gt=0, le=100)]
    """The shape parameter."""


class Distribution(ScenarioPart):
    """A duration: constant, or drawn from a distribution. Set exactly one of the five."""

    short_form = "constant"

    constant: Duration | None = None
    """Always the same duration. A plain string sets this field."""

    uniform: Uniform | None = None
    """All durations between two bounds, equally likely."""

    exponential: Exponential | None = None
    """Many short durations and few long ones."""

    lognormal: Lognormal | None = None
    """A peak and a long tail."""

    weibull: Weibull | None = None
    """A distribution with a scale and a shape."""

    jitter: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Adds a random part of up to this share of the duration: 0.5 adds up to half."""

    at_least: Duration | None = None
    """The lower bound: shorter draws become this long."""

    at_most: PositiveDuration | None = None
    """The upper bound: longer draws become this long."""

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        _exactly_one(self, ("constant", "uniform", "exponential", "lognormal", "weibull"))
        return self


NO_DELAY = Distribution(constant="0s")  # pyright: ignore[reportArgumentType] the file has a string, too


class RunTime(Distribution):
    """How long pods run, from the time when all pods of the workload are ready."""

    per: Literal["Workload", "Pod"] = "Workload"
    """`Workload`: all pods of a workload run equally long. `Pod`: each has its own run time."""


# --- workloads and their arrivals ------------------------------------------------------------------


class Fixed(ScenarioPart):
    """A fixed number of arrivals at equal intervals."""

    count: Count
    """The number of arrivals."""

    start: Duration = 0
    """The time of the first arrival."""

    every: Duration = 0
    """The interval between arrivals; absent: all at the same time."""


class Poisson(ScenarioPart):
    """Independent arrivals with a mean interval (a Poisson process)."""

    every: PositiveDuration
    """The mean interval between arrivals."""

    start: Duration = 0
    """The time from which workloads arrive."""

    end: Duration | None = None
    """The time until which workloads arrive; absent: until `count` is reached or the run ends."""

    count: Count | None = None
    """The maximum number of arrivals."""


class Arrivals(ScenarioPart):
    """When workloads of a class are submitted, from the start of the run. Set exactly one field."""

    fixed: Fixed | None = None
    """A fixed number of arrivals at equal intervals."""

    poisson: Poisson | None = None
    """Independent arrivals with a mean interval."""

    at: tuple[Duration, ...] | None = None
    """Arrivals at these times."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _exactly_one(self, ("fixed", "poisson", "at"))
        return self


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, Mapping) else value


class SliceLayer(ScenarioPart):
    """Slices: so many pods at a time in one domain."""

    topology: str
    """The label of the level of the domain."""

    size: Count
    """The number of pods of a slice."""


class TopologyRequest(ScenarioPart):
    """Where the pods of each workload must be together. As `topologyRequest` of a Workload.

    Set at most one of required, preferred and unconstrained. The flavor needs a Topology, and the run nodes.
    """

    required: str | None = None
    """The label of the level: all pods are in one domain of it, such as one rack."""

    preferred: str | None = None
    """The label of the level that is tried first. Without room, wider levels follow, then several domains."""

    unconstrained: bool | None = None
    """Whether pods can be on any nodes."""

    pod_set_slice_required_topology: str | None = None
    """The label of the level of slices."""

    pod_set_slice_size: Count | None = None
    """The number of pods of a slice."""

    podset_slice_required_topology_constraints: tuple[SliceLayer, ...] | None = None
    """Several layers of slices, the outermost first; instead of the two fields above."""

    @model_validator(mode="after")
    def _one_level(self) -> Self:
        fields = ("required", "preferred", "unconstrained")
        if sum(getattr(self, field) is not None for field in fields) > 1:
            raise ValueError(f"set at most one of {', '.join(fields)}")
        return self


class Reference(ScenarioPart):
    """A Job or Workload of the manifests, the template of a class. It is not submitted itself."""

    kind: str = "Job"
    """Its kind."""

    namespace: str = "default"
    """Its namespace."""

    name: str
    """Its name."""


def _interval(value: Any) -> Nanoseconds | None:
    if value in {"Never", "Always"}:
        return None if value == "Never" else 0
    try:
        return _positive(nanoseconds(value))
    except ValueError as error:
        raise ValueError(f"write Never, Always or an interval: {error}") from None


class Evictions(ScenarioPart):
    """How pods of evicted workloads end, and which of the work of pods that stop early is kept."""

    termination: Distribution = NO_DELAY
    """How long pods take to stop. The workload holds its quota until then."""

    checkpoints: Annotated[Nanoseconds | None, BeforeValidator(_interval)] = None
    """Which work is kept, also of pods on failed nodes. `Never`: none. `Always`: all. An interval such as
    10m: the work up to the last full interval. Absent: none. Pods that have ended stay ended."""


class WorkloadClass(ScenarioPart):
    """Workloads of one kind: the same queue, size and distribution of run times."""

    name: Name
    """The name of the class in the report."""

    template: Reference | None = None
    """The Job or Workload that each arrival is a copy of; instead of queue, pods and requests."""

    queue: str | None = None
    """The LocalQueue, as namespace/name. A pattern such as `team-*/main` creates one class for each
    LocalQueue that matches. With a template, it replaces the queue of the template."""

    priority_class: str | None = None
    """The WorkloadPriorityClass. With a template, it replaces the class of the template."""

    pods: Count | None = None
    """The number of pods; absent: 1."""

    min_pods: Count | None = None
    """The minimum number of pods for partial admission."""

    requests: dict[str, str | int] | None = None
    """The requests of each pod, by resource."""

    topology_request: TopologyRequest | None = None
    """Where the pods must be together. With a template, the annotations of the template request it."""

    run_time: RunTime | None = None
    """How long pods run; absent: `runTime` of the scenario."""

    pods_ready_after: Distribution | None = None
    """The time from admission until all pods are ready; absent: `podsReadyAfter` of the scenario."""

    evictions: Evictions | None = None
    """What happens when workloads are preempted; absent: `evictions` of the scenario."""

    arrivals: Annotated[tuple[Arrivals, ...], BeforeValidator(_listed)] = ()
    """When workloads are submitted: one kind of arrivals or a list; absent: one at the start."""

    @model_validator(mode="after")
    def _described(self) -> Self:
        if self.template is None:
            for field in ("queue", "requests"):
                if getattr(self, field) is None:
                    raise ValueError(f"set {field}, or a template")
        else:
            for field in ("pods", "min_pods", "requests", "topology_request"):
                if getattr(self, field) is not None:
                    raise ValueError(f"{to_camel(field)} belongs to the template: remove one of the two")
        return self


class QueueMapping(ScenarioPart):
    """The LocalQueue of each job of a trace."""

    by: Literal["user", "group", "queue", "partition"] = "queue"
    """The column of the Standard Workload Format that selects the LocalQueue. In a CSV it is `queue`."""

    map: dict[str, str] = Field(default_factory=dict)
    """The LocalQueue, as namespace/name, for each value of the column."""

    default: str | None = None
    """The LocalQueue for all other values; absent: other values are an error."""


class Trace(ScenarioPart):
    """Workloads from a recorded trace."""

    name: Name
    """The name of the trace in the report."""

    file: str
    """The path of the file, relative to the scenario."""

    format: Literal["csv", "swf"] | None = None
    """`csv`, or `swf` for the Standard Workload Format; absent: by the suffix of the file."""

    queues: QueueMapping = QueueMapping()
    """The LocalQueue of each job; the queues of a CSV may be LocalQueues already."""

    requests: dict[str, str | int] = Field(default_factory=lambda: {"cpu": "1"})
    """The requests of a pod for each processor of the Standard Workload Format."""

    memory: bool = False
    """Whether pods also request the memory of the Standard Workload Format."""

    processors_per_pod: Count = 1
    """The number of processors of the Standard Workload Format for one pod."""

    topology_request: TopologyRequest | None = None
    """Where the pods of each job must be together."""

    columns: dict[str, str] = Field(default_factory=dict)
    """The names of the columns in the CSV, by the standard name of the column."""

    start: Duration = 0
    """The time when the first job of the trace is submitted."""

    from_first: bool = True
    """Whether the times of the trace count from its first job, or from 0."""

    speed: Annotated[float, Field(gt=0)] = 1.0
    """The factor by which arrivals are faster: 2 halves the intervals. Run times stay."""

    limit: Count | None = None
    """The number of jobs to take from the start of the file; absent: all."""

    pods_ready_after: Distribution | None = None
    """The time from admission until all pods are ready; absent: `podsReadyAfter` of the scenario."""

    evictions: Evictions | None = None
    """What happens when workloads are preempted; absent: `evictions` of the scenario."""


# --- changes during the run ------------------------------------------------------------------------


class ObjectName(ScenarioPart):
    """An object of the manifests."""

    kind: str
    """Its kind."""

    namespace: str = ""
    """Its namespace, for kinds with a namespace."""

    name: str
    """Its name."""


class PatchOf(ObjectName):
    """A patch of an object."""

    patch: dict[str, Any]
    """A JSON merge patch, as `kubectl patch --type merge` takes it."""


class Change(ScenarioPart):
    """A change of an object during the run. Set exactly one of patch, apply and delete."""

    at: Duration
    """The time of the change."""

    patch: PatchOf | None = None
    """Patch an object."""

    apply: dict[str, Any] | None = None
    """Create or replace an object: a whole manifest."""

    delete: ObjectName | None = None
    """Delete an object."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _exactly_one(self, ("patch", "apply", "delete"))
        return self


class Kill(ScenarioPart):
    """A failure of running workloads drawn at random. `changes` let the pods on certain nodes fail."""

    at: Duration
    """The time of the failure."""

    count: Count = 1
    """The number of running workloads that fail, drawn at random."""

    workloads: str = "*"
    """A pattern for the names of the classes that are affected."""

    flavor: str = "*"
    """A pattern for the flavors that an affected workload holds."""

    then: Literal["Restart", "Fail"] = "Restart"
    """`Restart`: the pods start again with the same quota. `Fail`: the workload has failed."""


class Repeat(ScenarioPart):
    """Manifests that are repeated with counters. Strings in them can contain counters: `${queue}`."""

    over: dict[str, Count]
    """The counters and their number of values, from 0. Each combination creates the manifests once."""

    objects: tuple[dict[str, Any], ...]
    """The manifests."""


class NodeLevel(ScenarioPart):
    """Domains of one level, such as racks."""

    label: str
    """The label of nodes that is the level, such as `example.com/rack`."""

    count: Count
    """The number of domains in each domain of the level above."""


class NodeGroup(ScenarioPart):
    """Equal nodes, in domains of equal size.

    Names and values of labels are the name of the group with numbers from 0: node `gpu-0-3-17` is in rack
    `gpu-0-3` of block `gpu-0`. The label `kubernetes.io/hostname` is the name of the node.
    """

    name: Name
    """The name of the group."""

    domains: tuple[NodeLevel, ...] = ()
    """The levels above hosts, the widest first; absent: all nodes are together."""

    hosts: Count
    """The number of nodes in each domain of the last level."""

    allocatable: dict[str, str | int]
    """What one node can allocate, by resource. Without `pods`, it has room for 110 pods."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Other labels of the nodes."""

    taints: tuple[dict[str, Any], ...] = ()
    """Taints of the nodes, as in `spec.taints` of a Node."""

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        labels = [level.label for level in self.domains]
        for label in labels:
            if labels.count(label) > 1 or label in self.labels or label == HOST_NAME:
                raise ValueError(f"the nodes have the label {label} twice: remove one of the two")
        return self


class Scenario(ScenarioPart):
    """A run: the manifests, the workloads that arrive, and changes. At least one workload must arrive."""

    description: str = ""
    """What the scenario shows, in one sentence."""

    seed: int | None = None
    """The random seed; absent: a random one, which the report contains."""

    until: PositiveDuration | None = None
    """The end of the run; absent: when all workloads have ended."""

    manifests: tuple[str, ...] = ()
    """The paths of files with manifests, relative to the scenario."""

    repeat: tuple[Repeat, ...] = ()
    """Manifests that are repeated with counters."""

    nodes: tuple[NodeGroup, ...] = ()
    """Nodes, besides those of the manifests. With nodes, workloads in flavors with a Topology are placed.
    Without, such flavors count by quota alone."""

    run_time: RunTime | None = None
    """How long pods run, for classes without `runTime`."""

    pods_ready_after: Distribution = NO_DELAY
    """The time from admission until all pods are ready."""

    evictions: Evictions = Evictions()
    """What happens when workloads are preempted."""

    admission_checks: Distribution = NO_DELAY
    """The time until admission checks are ready."""

    workloads: tuple[WorkloadClass, ...] = ()
    """The workloads that arrive. Other Jobs and Workloads of the manifests arrive at the start."""

    traces: tuple[Trace, ...] = ()
    """Recorded workloads that arrive."""

    changes: tuple[Change, ...] = ()
    """Objects that are patched, created, replaced or deleted during the run, such as nodes that fail."""

    kills: tuple[Kill, ...] = ()
    """Failures of running workloads."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [source.name for source in (*self.workloads, *self.traces)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"several workloads or traces have the name {name}")
        groups = [group.name for group in self.nodes]
        for name in groups:
            if groups.count(name) > 1:
                raise ValueError(f"several groups of nodes have the name {name}")
        return self
