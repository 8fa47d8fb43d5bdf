"""``kubeflow.org/v1`` TFJob, PyTorchJob, XGBoostJob, PaddleJob and JAXJob: one controller runs them all."""

from typing import Final

from admitq.integrations.base import Integration
from admitq.integrations.families.kubeflow_jobs import ReplicaRoles, create_replica_job_kind

CONTROLLER: Final = "kubeflow.org/training-operator"


def _create_training_job_kind(
    name: str, field: str, *roles: str, adopts_prebuilt_workload: bool = True
) -> Integration:
    return create_replica_job_kind(
        name,
        "v1",
        # The controller accepts the names of roles in any case.
        ReplicaRoles(field, roles, ignores_case=True),
        controller=CONTROLLER,
        adopts_prebuilt_workload=adopts_prebuilt_workload,
    )


TF_JOB: Final = _create_training_job_kind(
    "TFJob", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"
)
PYTORCH_JOB: Final = _create_training_job_kind("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker")
XGBOOST_JOB: Final = _create_training_job_kind("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker")
PADDLE_JOB: Final = _create_training_job_kind("PaddleJob", "paddleReplicaSpecs", "Master", "Worker")
JAX_JOB: Final = _create_training_job_kind(
    "JAXJob", "jaxReplicaSpecs", "Worker", adopts_prebuilt_workload=False
)
