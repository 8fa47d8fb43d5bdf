"""The reviews that `hack/bench webhook` sends: of ordinary Jobs, of large Jobs, and of hostile Jobs."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from benchmarks.webhook_server import QUEUE

JOB_BYTES: Final = 5_000
"""The size of an ordinary Job. Its review has about 800 bytes more."""
OBJECT_BYTES: Final = 200_000
LABELS: Final = 200_000
VARIABLES: Final = 250_000

_PADDING: Final = "example.com/notes"


class ObjectTooLarge(ValueError):
    """An object is larger than the requested size before it is padded."""


def ordinary_job() -> dict[str, Any]:
    """Return a Job of `JOB_BYTES`, as the API server sends it: with its defaults and managed fields."""
    return pad(create_job(variables=8), JOB_BYTES)


def large_job() -> dict[str, Any]:
    """Return a Job of `OBJECT_BYTES` with 1,100 environment variables and their managed fields."""
    return pad(create_job(variables=1_100, value="v" * 64), OBJECT_BYTES)


def job_with_labels(count: int = LABELS) -> dict[str, Any]:
    """Return a Job with labels, and with its field manager's record of them."""
    job = create_job(variables=0)
    names = [f"l{number:06}" for number in range(count)]
    job["metadata"]["labels"] |= dict.fromkeys(names, "")
    fields = {"f:metadata": {"f:labels": {f"f:{name}": {} for name in names}}}
    job["metadata"]["managedFields"] = [_manager(fields)]
    return job


def job_with_variables(count: int = VARIABLES) -> dict[str, Any]:
    """Return a Job with environment variables, without managed fields, for which it would be too large."""
    job = create_job(variables=0)
    del job["metadata"]["managedFields"]
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": f"E{i}"} for i in range(count)]
    return job


BODIES: Final[Mapping[str, Callable[[], list[bytes]]]] = {
    "jobs": lambda: [review(ordinary_job())],
    "objects": lambda: [review(large_job())],
    "hostile": lambda: [review(job_with_labels()), review(job_with_variables())],
}
"""Bodies of reviews by their kind; hostile ones alternate."""


def pad(job: dict[str, Any], size: int) -> dict[str, Any]:
    """Add an annotation to a Job with annotations, so that its JSON has exactly ``size`` bytes.

    Raises:
        ObjectTooLarge: the Job is larger without the annotation.
    """
    annotations = job["metadata"]["annotations"]
    annotations[_PADDING] = ""
    missing = size - len(orjson.dumps(job))
    if missing < 0:
        raise ObjectTooLarge(f"the Job has {-missing} bytes more than {size}")
    annotations[_PADDING] = "x" * missing
    return job


def review(job: Mapping[str, Any]) -> bytes:
    """Return the body of the review of a new Job."""
    kind = {"group": "batch", "version": "v1", "kind": "Job"}
    resource = {"group": "batch", "version": "v1", "resource": "jobs"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "work",
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {
            "username": "tenant",
            "groups": ["team", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=8f3e0c6a5d1b9e72"]},
        },
        "object": job,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl"},
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


def create_job(*, variables: int, value: str = "a value") -> dict[str, Any]:
    """Return a queued Job of four pods with environment variables."""
    container = {
        "name": "main",
        "image": "registry.example.com/team/work:1.4.2",
        "command": ["python", "-m", "work"],
        "args": ["--input=/data/in", "--output=/data/out"],
        "env": [{"name": f"VARIABLE_{i:04}", "value": value} for i in range(variables)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    identity = {
        "batch.kubernetes.io/controller-uid": "1f0e5c0a-7d0b-4f5e-9e8c-0c2b7a4d9e11",
        "batch.kubernetes.io/job-name": "work",
    }
    template = {
        "metadata": {"labels": {"app": "work", **identity}},
        "spec": {
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "work",
            "namespace": "team",
            "uid": "1f0e5c0a-7d0b-4f5e-9e8c-0c2b7a4d9e11",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "work", "admitq.dev/queue-name": QUEUE},
            "annotations": {"example.com/owner": "team"},
            "managedFields": [_manager(_managed_fields(variables))],
        },
        "spec": {
            "parallelism": 4,
            "completions": 4,
            "completionMode": "NonIndexed",
            "backoffLimit": 6,
            "selector": {"matchLabels": identity},
            "manualSelector": False,
            "podReplacementPolicy": "TerminatingOrFailed",
            "suspend": True,
            "template": template,
        },
        "status": {},
    }


def _manager(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "manager": "kubectl",
        "operation": "Update",
        "apiVersion": "batch/v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def _managed_fields(variables: int) -> dict[str, Any]:
    each: dict[str, Any] = {".": {}, "f:name": {}, "f:value": {}}
    container: dict[str, Any] = {
        ".": {},
        "f:args": {},
        "f:command": {},
        "f:env": {".": {}} | {f'k:{{"name":"VARIABLE_{i:04}"}}': each for i in range(variables)},
        "f:image": {},
        "f:imagePullPolicy": {},
        "f:name": {},
        "f:resources": {".": {}, "f:limits": {".": {}, "f:memory": {}}, "f:requests": {".": {}, "f:cpu": {}}},
        "f:terminationMessagePath": {},
        "f:terminationMessagePolicy": {},
        "f:volumeMounts": {".": {}, 'k:{"mountPath":"/data"}': {".": {}, "f:mountPath": {}, "f:name": {}}},
    }
    pod = {
        "f:containers": {'k:{"name":"main"}': container},
        "f:dnsPolicy": {},
        "f:restartPolicy": {},
        "f:schedulerName": {},
        "f:securityContext": {},
        "f:terminationGracePeriodSeconds": {},
        "f:volumes": {".": {}, 'k:{"name":"data"}': {".": {}, "f:name": {}, "f:persistentVolumeClaim": {}}},
    }
    spec = {
        "f:backoffLimit": {},
        "f:completionMode": {},
        "f:completions": {},
        "f:parallelism": {},
        "f:suspend": {},
        "f:template": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": pod},
    }
    metadata = {"f:annotations": {".": {}}, "f:labels": {".": {}, "f:app": {}, "f:admitq.dev/queue-name": {}}}
    return {"f:metadata": metadata, "f:spec": spec}
