"""CEL expressions for the chart's policy that limits the use of priority classes.

A job names a WorkloadPriorityClass by a label. Without this label, its pod templates name a PriorityClass.
The label counts in templates too: pods that are queued one by one, and Jobs of a CronJob, copy it from there.
The policy cannot check these objects, because it exempts the controllers that create them.
"""

from typing import Any, Final, NamedTuple

from admitq.integrations.registry import BUILT_IN_KINDS
from admitq_api.labels import DEFAULT_GROUP, names_for

_LABEL: Final = names_for(DEFAULT_GROUP).priority_class

_ANY_PODS: Final = tuple(
    kind.framework
    for kind in BUILT_IN_KINDS
    if kind.framework == "pod" or "pod" in kind.ownership.implied_frameworks
)


class Carrier(NamedTuple):
    """A kind of object that names priority classes.

    ``templates`` are paths of pod templates; ``[]`` after a list and ``{}`` after a map stand for each item.
    ``classes`` are paths of further fields with the name of a PriorityClass, and ``labels`` of further
    labels. One of the ``frameworks`` must be enabled.
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
    "ray.io/rayjob": (*(f"spec.rayClusterSpec.{path}" for path in _RAY), "spec.submitterPodTemplate"),
    "ray.io/raycluster": tuple(f"spec.{path}" for path in _RAY),
    "ray.io/rayservice": tuple(f"spec.rayClusterConfig.{path}" for path in _RAY),
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
"""The paths of pod templates in the objects of each kind."""

_CLASSES: Final = {
    "sparkoperator.k8s.io/sparkapplication": (
        "spec.driver.priorityClassName",
        "spec.executor.priorityClassName",
    ),
    "pod": ("spec.priorityClassName",),
    **{kind.framework: _RUN_POLICY for kind in BUILT_IN_KINDS if kind.group == "kubeflow.org"},
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
"""Kinds that create jobs and pods, and are never queued themselves."""


def carriers() -> tuple[Carrier, ...]:
    """Return all kinds of objects that name priority classes, job kinds of the registry first."""
    own = tuple(
        Carrier(
            kind.group,
            kind.plural,
            # Pods of every template can have their own queue name.
            (kind.framework, *(framework for framework in _ANY_PODS if framework != kind.framework))
            if not kind.group or kind.group in {"apps", "batch"}
            else (kind.framework,),
            _TEMPLATES[kind.framework],
            _CLASSES.get(kind.framework, ()),
        )
        for kind in BUILT_IN_KINDS
    )
    return (*own, *_OTHERS)


def tables() -> dict[str, Any]:
    """Return the data for the chart: for each kind, expressions for the names in ``${object}``.

    For a custom kind, the expressions read only the label.
    """
    return {
        "rules": [
            {
                "group": carrier.group,
                "resource": carrier.resource,
                "frameworks": list(carrier.frameworks),
                **_names(carrier),
            }
            for carrier in carriers()
        ],
        "custom": _names(Carrier("", "", (), ())),
    }


def _names(carrier: Carrier) -> dict[str, str]:
    return {"workloadPriorityClasses": _sum(_labels(carrier)), "priorityClasses": _sum(_classes(carrier))}


def _labels(carrier: Carrier) -> list[str]:
    places = ("metadata.labels", *carrier.labels, *(f"{path}.metadata.labels" for path in carrier.templates))
    return [values(f"{place}[?'{_LABEL}']") for place in places]


def _classes(carrier: Carrier) -> list[str]:
    places = (*carrier.classes, *(f"{path}.spec.priorityClassName" for path in carrier.templates))
    return [values(place) for place in places]


def _sum(lists: list[str]) -> str:
    return " + ".join(lists) or "[]"


def values(place: str) -> str:
    """Return an expression for the list of names at a path of ``${object}``.

    If a field is absent, the list is empty. The path can lead through one list or map at most.
    """
    for mark, empty in (("[]", "[]"), ("{}", "{}")):
        before, separator, after = place.partition(f"{mark}.")
        if separator:
            whole = f"dyn(${{object}}).?{before}.orValue({empty})"
            element = "x" if mark == "[]" else f"{whole}[x]"
            return f"{whole}.map(x, {element}.?{after}.orValue(''))"
    return f"[dyn(${{object}}).?{place}.orValue('')]"
