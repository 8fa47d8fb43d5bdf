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
    """One aspect of the current state of an object."""

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
    """The type of the condition."""

    status: Literal["True", "False", "Unknown"]
    """The status of the condition: True, False or Unknown."""

    observed_generation: Annotated[Int64 | None, Field(ge=0)] = None
    """The metadata.generation that the condition was set for."""

    last_transition_time: Time
    """The time at which the status last changed."""

    reason: Annotated[
        str, Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ]
    """The reason for the last change, as one word in CamelCase."""

    message: Annotated[str, Field(max_length=32768)]
    """A message for people that explains the condition."""


# Each condition is one field for field managers: smaller objects, and cheaper writes of the API server.
Conditions = Annotated[tuple[Annotated[Condition, ATOMIC_MAP], ...], Field(max_length=16), map_list("type")]


class LabelSelectorRequirement(ApiModel):
    """A requirement on one label."""

    key: str
    """The key of the label."""

    operator: str
    """How the label is compared: In, NotIn, Exists or DoesNotExist."""

    values: Annotated[tuple[str, ...], ATOMIC_LIST] = ()
    """The values for the operators In and NotIn."""


class LabelSelector(ApiModel):
    """Selects objects by their labels. An empty selector selects all objects."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the object must have, with their values."""

    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], ATOMIC_LIST] = ()
    """Requirements on labels. All of them must be met."""


AtomicLabelSelector = Annotated[LabelSelector, ATOMIC_MAP]

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(ApiModel):
    """A taint of a node. Pods that do not tolerate it are kept off the node."""

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The key of the taint."""

    value: Annotated[str | None, Field(max_length=63)] = None
    """The value of the taint."""

    effect: Effect
    """The effect on pods that do not tolerate the taint."""

    time_added: Time | None = None
    """The time at which the taint was added."""


class Toleration(ApiModel):
    """Allows pods to run on nodes with matching taints."""

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
    """The key of the taints. If empty, all keys match."""

    operator: Literal["Exists", "Equal"] | None = None
    """How the value is compared. The default is Equal."""

    value: Annotated[str | None, Field(max_length=63)] = None
    """The value of the taints."""

    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The effect of the taints. If empty, all effects match."""

    toleration_seconds: Int64 | None = None
    """For how many seconds a NoExecute taint is tolerated. By default there is no limit."""


class FairSharingSpec(ApiModel):
    """The weight in fair sharing."""

    weight: Annotated[
        Quantity,
        ValidationRule(
            "isQuantity(string(self)) && (quantity(string(self)).compareTo(quantity('0')) == 0 "
            "|| quantity(string(self)).isGreaterThan(quantity('1n')))",
            "weight must be 0, or greater than 1n (one billionth)",
        ),
    ] = 1
    """The weight relative to the other members of the cohort: twice the weight entitles to twice the share.
    Members of weight 0 come last."""


class FairSharingStatus(ApiModel):
    """The state of fair sharing."""

    weighted_share: Int64
    """The weighted share: the largest ratio of borrowed quota to lendable quota of any resource, in
    thousandths, divided by the weight."""


class ResourceQuota(ApiModel):
    """The quota of one resource in one flavor."""

    name: str
    """The name of the resource."""

    nominal_quota: Quantity
    """The amount of the resource that is available without borrowing."""

    borrowing_limit: Quantity | None = None
    """The maximum amount that can be borrowed in addition to the nominal quota. By default there is no
    limit."""

    lending_limit: Quantity | None = None
    """The maximum amount of the nominal quota that others can borrow. By default they can borrow all of
    it."""


class FlavorQuotas(ApiModel):
    """The quotas of one flavor."""

    name: Subdomain
    """The name of the ResourceFlavor."""

    resources: Annotated[tuple[ResourceQuota, ...], Field(min_length=1, max_length=64), map_list("name")]
    """The quota of each of the group's coveredResources, in the same order."""


class ResourceGroup(ApiModel):
    """Resources that the same flavors provide. All resources of a group get the same flavor."""

    rules = (
        ValidationRule(
            "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
            "flavors must have the same number of resources as the coveredResources",
            ".flavors",
        ),
    )

    covered_resources: Annotated[tuple[str, ...], Field(min_length=1, max_length=64), ATOMIC_LIST]
    """The resources of the group."""

    flavors: Annotated[tuple[FlavorQuotas, ...], Field(min_length=1, max_length=64), map_list("name")]
    """The flavors that provide the resources, in the order in which they are tried."""


ResourceGroups = Annotated[tuple[ResourceGroup, ...], Field(max_length=16), ATOMIC_LIST]


def require_parent_for_limits(parent: str, word: str) -> ValidationRule:
    """Return the rule that a spec with resourceGroups needs a parent to set borrowing limits."""
    return ValidationRule(
        f"has(self.{parent}) || !has(self.resourceGroups) || self.resourceGroups.all(rg, "
        "rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
        f"borrowingLimit must be nil when {word} is empty",
        ".resourceGroups",
    )
