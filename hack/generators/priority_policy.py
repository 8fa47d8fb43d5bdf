"""CEL expressions for the chart's policy that limits the use of priority classes.

A job names a WorkloadPriorityClass by a label. Without this label, its pod templates name a PriorityClass.
The label counts in templates too: pods that are queued one by one, and Jobs of a CronJob, copy it from there.
Controllers create these, and the policy exempts controllers.
"""

from typing import Any, Final, NamedTuple

from admitq.integrations.registry import BUILT_IN_KINDS
from admitq_api.labels import DEFAULT_GROUP, names_for

_LABEL: Final = names_for(DEFAULT_GROUP).priority_class

_ANY_PODS: Final = tuple(
    one.framework
    for one in BUILT_IN_KINDS
    if one.framework == "pod" or "pod" in one.ownership.implied_frameworks
)


class Carrier(NamedTuple):
    """A kind of object that names priority classes.

    ``templates`` are paths of pod templates; ``[]`` after a list and ``{}`` after a map stand for each item.
    ``classes`` are paths of further fields with the name of a PriorityClass, and ``labels`` of further
    labels. ``frameworks`` are frameworks of which one must be enabled.
    """

    group: str
    resource: str
    frameworks: tuple[str, ...]
    templates: tuple[str, ...]
    classes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


_RAY: Final = ("headGroupSpec.template", "workerGroupSpecs[].template")
_RUN_POLICY: Final = ("spec.runPolicy.schedulingPolicy.priorityClass",)

_TEMPLATES: Final = {
    "batch/job": ("spec.template",),
    "jobset.x-k8s.io/jobset": ("spec.replicatedJobs[].template.spec.template",),
    "ray.io/rayjob": (*(f"spec.rayClusterSpec.{one}" for one in _RAY), "spec.submitterPodTemplate"),
    "ray.io/raycluster": tuple(f"spec.{one}" for one in _RAY),
    "ray.io/rayservice": tuple(f"spec.rayClusterConfig.{one}" for one in _RAY),
    "trainer.kubeflow.org/trainjob": (),
    "kubeflow.org/mpijob": ("spec.mpiReplicaSpecs{}.template",),
    "kubeflow.org/tfjob": ("spec.tfReplicaSpecs{}.template",),
    "kubeflow.org/pytorchjob": ("spec.pytorchReplicaSpecs{}.template",),
    "kubeflow.org/xgboostjob": ("spec.xgbReplicaSpecs{}.template",),
    "kubeflow.org/paddlejob": ("spec.paddleReplicaSpecs{}.template",),
    "kubeflow.org/jaxjob": ("spec.jaxReplicaSpecs{}.template",),
    "workload.codeflare.dev/appwrapper": (
        "spec.components[].template",
        "spec.components[].template.spec.template",
    ),
    "sparkoperator.k8s.io/sparkapplication": (),
    "pod": (),
    "deployment": ("spec.template",),
    "statefulset": ("spec.template",),
    "leaderworkerset.x-k8s.io/leaderworkerset": (
        "spec.leaderWorkerTemplate.leaderTemplate",
        "spec.leaderWorkerTemplate.workerTemplate",
    ),
}
"""The pod templates of each kind that lie in its objects."""

_CLASSES: Final = {
    "sparkoperator.k8s.io/sparkapplication": (
        "spec.driver.priorityClassName",
        "spec.executor.priorityClassName",
    ),
    "pod": ("spec.priorityClassName",),
    **{one.framework: _RUN_POLICY for one in BUILT_IN_KINDS if one.group == "kubeflow.org"},
}

_OTHERS: Final = (
    Carrier(
        "batch",
        "cronjobs",
        ("batch/job", *_ANY_PODS),
        ("spec.jobTemplate.spec.template",),
        labels=("spec.jobTemplate.metadata.labels",),
    ),
    Carrier("apps", "replicasets", _ANY_PODS, ("spec.template",)),
    Carrier("apps", "daemonsets", _ANY_PODS, ("spec.template",)),
    Carrier("", "replicationcontrollers", _ANY_PODS, ("spec.template",)),
)
"""What makes jobs and pods and is never queued itself."""


def carriers() -> tuple[Carrier, ...]:
    """Return all kinds of objects that name priority classes, job kinds of the registry first."""
    own = tuple(
        Carrier(
            one.group,
            one.plural,
            # Pods of any template can name their own queue.
            (one.framework, *(framework for framework in _ANY_PODS if framework != one.framework))
            if not one.group or one.group in {"apps", "batch"}
            else (one.framework,),
            _TEMPLATES[one.framework],
            _CLASSES.get(one.framework, ()),
        )
        for one in BUILT_IN_KINDS
    )
    return (*own, *_OTHERS)


def tables() -> dict[str, Any]:
    """Return the data for the chart: for each kind, expressions for the names in ``${object}``.

    For a custom kind, the expressions read only the label.
    """
    return {
        "rules": [
            {
                "group": one.group,
                "resource": one.resource,
                "frameworks": list(one.frameworks),
                **_names(one),
            }
            for one in carriers()
        ],
        "custom": _names(Carrier("", "", (), ())),
    }


def _names(one: Carrier) -> dict[str, str]:
    return {"workloadPriorityClasses": _sum(_labels(one)), "priorityClasses": _sum(_classes(one))}


def _labels(one: Carrier) -> list[str]:
    places = ("metadata.labels", *one.labels, *(f"{path}.metadata.labels" for path in one.templates))
    return [values(f"{place}[?'{_LABEL}']") for place in places]


def _classes(one: Carrier) -> list[str]:
    places = (*one.classes, *(f"{path}.spec.priorityClassName" for path in one.templates))
    return [values(place) for place in places]


def _sum(lists: list[str]) -> str:
    return " + ".join(lists) or "[]"


def values(place: str) -> str:
    """Return an expression for the list of names at a path of ``${object}``.

    If a field is absent, the list is empty. The path can lead through one list or map at most.
    """
    for mark, empty in (("[]", "[]"), ("{}", "{}")):
        before, found, after = place.partition(f"{mark}.")
        if found:
            whole = f"dyn(${{object}}).?{before}.orValue({empty})"
            element = "x" if mark == "[]" else f"{whole}[x]"
            return f"{whole}.map(x, {element}.?{after}.orValue(''))"
    return f"[dyn(${{object}}).?{place}.orValue('')]"
