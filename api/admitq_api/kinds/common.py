"""Types that several kinds use."""

from typing import Annotated, Literal

from pydantic import Field

from admitq_api.schema import (
    ATOMIC_LIST,
    ATOMIC_MAP,
    INT32,
    INT64,
    ApiModel,
    SchemaKeywords,
    ValidationRule,
    map_list,
)
from admitq_api.syntax import LABEL_PATTERN, QUALIFIED_NAME_PATTERN, SUBDOMAIN_PATTERN

Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
Count = Annotated[Int32, Field(ge=0)]

Subdomain = Annotated[str, Field(max_length=253, pattern=SUBDOMAIN_PATTERN)]
"""The name of an object: ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology."""

PodSetName = Annotated[str, Field(max_length=63, pattern=LABEL_PATTERN)]
AdmissionCheckName = Annotated[str, Field(min_length=1, max_length=316)]
LabelKey = Annotated[str, Field(min_length=1, max_length=316, pattern=QUALIFIED_NAME_PATTERN)]
Time = Annotated[str, SchemaKeywords({"format": "date-time"})]

Quantity = Annotated[
    str | int,
    SchemaKeywords(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": (
                r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"
            ),
            "x-kubernetes-int-or-string": True,
        },
        replaces=True,
    ),
]

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]


class Condition(ApiModel):
    """One aspect of the state of an object."""

    type: Annotated[
        str,
        Field(
            max_length=316,
            pattern=(
                r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
            ),
        ),
    ]
    """Which aspect."""

    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""

    observed_generation: Annotated[Int64 | None, Field(ge=0)] = None
    """The metadata.generation that this was found for."""

    last_transition_time: Time
    """When status last changed."""

    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    """Why, in one word for machines."""

    message: Annotated[str, Field(max_length=32768)]
    """Why, for people."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=16), map_list("type")]


class LabelSelectorRequirement(ApiModel):
    """A requirement on one label."""

    key: str
    """The label."""

    operator: str
    """In, NotIn, Exists or DoesNotExist."""

    values: Annotated[tuple[str, ...], ATOMIC_LIST] = ()
    """The values that In and NotIn compare with."""


class LabelSelector(ApiModel):
    """Selects objects by their labels; the empty one selects all."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that must be there with these values."""

    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], ATOMIC_LIST] = ()
    """Requirements that must all hold."""


AtomicLabelSelector = Annotated[LabelSelector, ATOMIC_MAP]

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(ApiModel):
    """What keeps pods off a node unless they tolerate it."""

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The key of the taint."""

    value: Annotated[str | None, Field(max_length=63)] = None
    """The value of the taint."""

    effect: Effect
    """What happens to pods that do not tolerate it."""

    time_added: Time | None = None
    """When it was added."""


class Toleration(ApiModel):
    """Lets pods onto nodes with certain taints."""

    rules = (
        ValidationRule(
            "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
            "operator must be Exists when key is empty, which means 'match all values and all keys'",
            ".operator",
        ),
        ValidationRule(
            "!(has(self.operator) && self.operator == 'Exists' && has(self.value) && self.value != '')",
            "value must be empty when operator is Exists",
            ".value",
        ),
        ValidationRule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "effect must be NoExecute when tolerationSeconds is set",
            ".effect",
        ),
    )

    key: Annotated[str | None, Field(max_length=317)] = None
    """The key of the taints; empty: all."""

    operator: Literal["Exists", "Equal"] | None = None
    """How value compares; absent: Equal."""

    value: Annotated[str | None, Field(max_length=63)] = None
    """The value of the taints."""

    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The effect of the taints; empty: all."""

    toleration_seconds: Int64 | None = None
    """How long a NoExecute taint is tolerated; absent: for ever."""


class FairSharingSpec(ApiModel):
    """How much this counts against others when quota is shared."""

    weight: Annotated[
        Quantity,
        ValidationRule(
            "isQuantity(string(self)) && (quantity(string(self)).compareTo(quantity('0')) == 0 "
            "|| quantity(string(self)).isGreaterThan(quantity('1n')))",
            "weight must be 0, or greater than 1n (one billionth)",
        ),
    ] = 1
    """Twice the weight, twice the share. 0: last of all."""


class FairSharingStatus(ApiModel):
    """How much is borrowed, weighed."""

    weighted_share: Int64
    """The largest share of a resource that is borrowed, in thousandths, divided by the weight."""


class ResourceQuota(ApiModel):
    """The quota of one resource in one flavor."""

    name: str
    """The resource."""

    nominal_quota: Quantity
    """How much there is without borrowing."""

    borrowing_limit: Quantity | None = None
    """How much may be borrowed beyond the nominal quota; absent: all there is."""

    lending_limit: Quantity | None = None
    """How much of the nominal quota others may borrow; absent: all."""


class FlavorQuotas(ApiModel):
    """The quotas of one flavor."""

    name: Subdomain
    """The ResourceFlavor."""

    resources: Annotated[tuple[ResourceQuota, ...], Field(min_length=1, max_length=64), map_list("name")]
    """A quota for each of the group's coveredResources, in their order."""


class ResourceGroup(ApiModel):
    """Resources that are provided together, by the same flavors."""

    rules = (
        ValidationRule(
            "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
            "flavors must have the same number of resources as the coveredResources",
            ".flavors",
        ),
    )

    covered_resources: Annotated[tuple[str, ...], Field(min_length=1, max_length=64), ATOMIC_LIST]
    """The resources."""

    flavors: Annotated[tuple[FlavorQuotas, ...], Field(min_length=1, max_length=64), map_list("name")]
    """The flavors that provide them, in the order in which they are tried."""


ResourceGroups = Annotated[tuple[ResourceGroup, ...], Field(max_length=16), ATOMIC_LIST]


def require_parent_for_limits(parent: str, word: str) -> ValidationRule:
    """The rule that without a parent nothing can be borrowed, for a spec with resourceGroups."""
    return ValidationRule(
        f"has(self.{parent}) || !has(self.resourceGroups) || self.resourceGroups.all(rg, "
        "rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
        f"borrowingLimit must be nil when {word} is empty",
        ".resourceGroups",
    )
