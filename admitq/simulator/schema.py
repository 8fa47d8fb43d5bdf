"""The scenario file: what arrives, how long it runs, and what happens meanwhile.

``Scenario`` is the whole of it. Durations are written as in Kubernetes ("90s", "1h30m") and are nanoseconds
here. docs/reference/scenario.md is generated from these classes.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from admitq_api.durations import parse_duration

KIND = "Scenario"
"""Kind of the document that is a scenario."""

Nanoseconds = int


def nanoseconds(text: object) -> Nanoseconds:
    """The length of a duration such as "1h30m".

    Raises:
        ValueError: it is no duration, or a negative one.
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
    given = [field for field in fields if getattr(part, field) is not None]
    if len(given) != 1:
        names = ", ".join(to_camel(field) for field in fields)
        raise ValueError(f"set exactly one of {names}" + (f", not {len(given)}" if given else ""))


class Part(BaseModel):
    """A part of the scenario: frozen, camelCase in the file, nothing but what is listed."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        # Only the scenario as a whole is ever read.
        defer_build=True,
    )

    short_form: ClassVar[str] = ""
    """The field that a bare text stands for."""

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, value: Any) -> Any:
        return {cls.short_form: value} if cls.short_form and isinstance(value, str) else value


# --- chance ---------------------------------------------------------------------------------------


class Uniform(Part):
    """Anything between two durations, each as likely."""

    min: Duration
    """The shortest."""

    max: Duration
    """The longest."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError("max must not be shorter than min")
        return self


class Exponential(Part):
    """Many short ones, few long ones."""

    mean: PositiveDuration
    """The mean."""


class Lognormal(Part):
    """As run times of batch jobs often are: a hump, and a long tail."""

    median: PositiveDuration
    """Half are shorter."""

    sigma: Annotated[float, Field(gt=0, le=10)]
    """How wide: the standard deviation of the logarithm."""


class Weibull(Part):
    """A shape below 1 has a long tail, 1 is exponential, above it gathers around the scale."""

    scale: PositiveDuration
    """63 % are shorter."""

    shape: Annotated[float, Field(gt=0, le=100)]
    """How it is spread."""


class Distribution(Part):
    """How long something takes: a duration, or one of the distributions."""

    short_form = "constant"

    constant: Duration | None = None
    """Always the same. A bare duration means this."""

    uniform: Uniform | None = None
    """Anything between two durations."""

    exponential: Exponential | None = None
    """Many short ones, few long ones."""

    lognormal: Lognormal | None = None
    """A hump and a long tail."""

    weibull: Weibull | None = None
    """By scale and shape."""

    jitter: Annotated[float, Field(ge=0, le=100)] = 0.0
    """What is drawn is made longer by up to this share of it: 0.5 adds anything up to half."""

    at_least: Duration | None = None
    """What is drawn shorter is made this long."""

    at_most: PositiveDuration | None = None
    """What is drawn longer is made this long."""

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        _exactly_one(self, ("constant", "uniform", "exponential", "lognormal", "weibull"))
        return self


AT_ONCE = Distribution(constant="0s")  # pyright: ignore[reportArgumentType] as it is written in the file


class RunTime(Distribution):
    """How long pods run, counted from the moment when all pods of the workload are ready."""

    per: Literal["Workload", "Pod"] = "Workload"
    """Whether all pods of a workload run equally long, or each for itself."""


# --- what arrives ---------------------------------------------------------------------------------


class Fixed(Part):
    """So many, at equal distances."""

    count: Count
    """How many."""

    start: Duration = 0
    """When the first comes."""

    every: Duration = 0
    """The time from one to the next; absent: all at once."""


class Poisson(Part):
    """Independent of each other, so many in the mean."""

    every: PositiveDuration
    """The mean time from one to the next."""

    start: Duration = 0
    """From when on."""

    end: Duration | None = None
    """Until when; absent: until `count` is reached, or the run ends."""

    count: Count | None = None
    """At most how many."""


class Arrivals(Part):
    """When workloads of a class are submitted. Times count from the start of the run."""

    fixed: Fixed | None = None
    """So many, at equal distances."""

    poisson: Poisson | None = None
    """Independent of each other."""

    at: tuple[Duration, ...] | None = None
    """At these times."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _exactly_one(self, ("fixed", "poisson", "at"))
        return self


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, Mapping) else value


class Reference(Part):
    """A Job or Workload among the manifests. It is then not submitted by itself."""

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


class Evictions(Part):
    """What becomes of preempted workloads."""

    termination: Distribution = AT_ONCE
    """How long their pods take to stop; they hold their quota until then."""

    checkpoints: Annotated[Nanoseconds | None, BeforeValidator(_interval)] = None
    """What work survives: `Never` none, `Always` all, an interval such as 10m what was done up to the last
    full one. Absent: none. Pods that have ended stay ended."""


class WorkloadClass(Part):
    """Workloads that are alike."""

    name: Name
    """The name in the report."""

    template: Reference | None = None
    """What is submitted, again and again; or else queue, pods and requests."""

    queue: str | None = None
    """The LocalQueue, as namespace/name. A pattern such as `team-*/main` means one such class for each
    LocalQueue that it fits. With a template it replaces the queue that the template names."""

    priority_class: str | None = None
    """The WorkloadPriorityClass. With a template it replaces the one that the template names."""

    pods: Count | None = None
    """How many pods; absent: 1."""

    min_pods: Count | None = None
    """With how few it can run (partial admission)."""

    requests: dict[str, str | int] | None = None
    """What each pod requests, by resource."""

    run_time: RunTime | None = None
    """How long pods run; absent: the scenario's."""

    pods_ready_after: Distribution | None = None
    """How long from admission until all pods are ready; absent: the scenario's."""

    evictions: Evictions | None = None
    """What becomes of preempted ones; absent: the scenario's."""

    arrivals: Annotated[tuple[Arrivals, ...], BeforeValidator(_listed)] = ()
    """When they are submitted, one way or a list of them; absent: one at the start."""

    @model_validator(mode="after")
    def _described(self) -> Self:
        if self.template is None:
            for field in ("queue", "requests"):
                if getattr(self, field) is None:
                    raise ValueError(f"set {field}, or a template")
        else:
            for field in ("pods", "min_pods", "requests"):
                if getattr(self, field) is not None:
                    raise ValueError(f"{to_camel(field)} is the template's: remove one of the two")
        return self


class QueueMapping(Part):
    """Which LocalQueue the jobs of a trace go to."""

    by: Literal["user", "group", "queue", "partition"] = "queue"
    """The column that decides, for the Standard Workload Format; a CSV has its column queue."""

    map: dict[str, str] = Field(default_factory=dict)
    """LocalQueue, as namespace/name, by the value of the column."""

    default: str | None = None
    """The LocalQueue of all other values; absent: they are an error."""


class Trace(Part):
    """Workloads as they were recorded elsewhere."""

    name: Name
    """The name in the report."""

    file: str
    """The file, relative to the scenario."""

    format: Literal["csv", "swf"] | None = None
    """CSV, or the Standard Workload Format; absent: by the file's suffix."""

    queues: QueueMapping = QueueMapping()
    """Which LocalQueue the jobs go to; a CSV may name LocalQueues itself."""

    requests: dict[str, str | int] = Field(default_factory=lambda: {"cpu": "1"})
    """What one processor of the Standard Workload Format counts as: the requests of one pod."""

    memory: bool = False
    """Whether the memory of the Standard Workload Format counts, too."""

    processors_per_pod: Count = 1
    """How many processors of the Standard Workload Format make one pod."""

    columns: dict[str, str] = Field(default_factory=dict)
    """Other names of the columns of a CSV, by ours."""

    start: Duration = 0
    """When the first job of the trace is submitted."""

    from_first: bool = True
    """Whether times count from the first job of the trace, or as they are written."""

    speed: Annotated[float, Field(gt=0)] = 1.0
    """2 submits twice as fast; run times stay."""

    limit: Count | None = None
    """How many jobs to take, from the start."""

    pods_ready_after: Distribution | None = None
    """How long from admission until all pods are ready; absent: the scenario's."""

    evictions: Evictions | None = None
    """What becomes of preempted ones; absent: the scenario's."""


# --- what happens ---------------------------------------------------------------------------------


class ObjectName(Part):
    """An object of the manifests."""

    kind: str
    """Its kind."""

    namespace: str = ""
    """Its namespace, where it has one."""

    name: str
    """Its name."""


class PatchOf(ObjectName):
    """An object, and what changes in it."""

    patch: dict[str, Any]
    """A JSON merge patch, as `kubectl patch --type merge` takes it."""


class Change(Part):
    """Something is changed, created or deleted while the run goes on."""

    at: Duration
    """When."""

    patch: PatchOf | None = None
    """Change an object."""

    apply: dict[str, Any] | None = None
    """Create an object, or put it in the place of the one that has its name: a whole manifest."""

    delete: ObjectName | None = None
    """Delete an object."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _exactly_one(self, ("patch", "apply", "delete"))
        return self


class Kill(Part):
    """Running workloads die, as when nodes fail."""

    at: Duration
    """When."""

    count: Count = 1
    """How many, drawn among those that run."""

    workloads: str = "*"
    """Only of these classes: a pattern for their names."""

    flavor: str = "*"
    """Only those that hold one of these flavors: a pattern."""

    then: Literal["Restart", "Fail"] = "Restart"
    """Whether they start over with the quota they have, or have failed for good."""


class Repeat(Part):
    """Manifests that are many times the same. Texts in them may name the counters: `${queue}`."""

    over: dict[str, Count]
    """Counters and how far they count, from 0; the manifests are written for each combination."""

    objects: tuple[dict[str, Any], ...]
    """The manifests."""


class Scenario(Part):
    """All that happens to the queues of the manifests. Everything but `workloads` has a default."""

    description: str = ""
    """What the scenario shows."""

    seed: int | None = None
    """From which chance is drawn; absent: one is drawn and printed."""

    until: PositiveDuration | None = None
    """When the run ends; absent: when all has ended."""

    manifests: tuple[str, ...] = ()
    """Files of manifests, relative to the scenario."""

    repeat: tuple[Repeat, ...] = ()
    """Manifests that are many times the same."""

    run_time: RunTime | None = None
    """How long pods run, where a class does not say."""

    pods_ready_after: Distribution = AT_ONCE
    """How long from admission until all pods are ready."""

    evictions: Evictions = Evictions()
    """What becomes of preempted workloads."""

    admission_checks: Distribution = AT_ONCE
    """How long admission checks take until they are ready."""

    workloads: tuple[WorkloadClass, ...] = ()
    """What is submitted. Jobs and Workloads of the manifests that no class refers to come at the start."""

    traces: tuple[Trace, ...] = ()
    """What is submitted as it was recorded elsewhere."""

    changes: tuple[Change, ...] = ()
    """What is changed, created or deleted while the run goes on."""

    kills: tuple[Kill, ...] = ()
    """Which running workloads die."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [one.name for one in (*self.workloads, *self.traces)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"several of workloads and traces are called {name}")
        return self
