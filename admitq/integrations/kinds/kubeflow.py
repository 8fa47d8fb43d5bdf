"""``kubeflow.org/v1`` TFJob, PyTorchJob, XGBoostJob, PaddleJob and JAXJob: one controller runs them all."""

from typing import Final

from admitq.integrations.base import Integration
from admitq.integrations.families.kubeflow_jobs import Roles, replica_job

CONTROLLER: Final = "kubeflow.org/training-operator"


def _training_job(name: str, field: str, *roles: str, adopts_prebuilt_workload: bool = True) -> Integration:
    return replica_job(
        name,
        "v1",
        # The controller corrects the case of a role's name before it looks for the role.
        Roles(field, roles, any_case=True),
        controller=CONTROLLER,
        adopts_prebuilt_workload=adopts_prebuilt_workload,
    )


TF_JOB: Final = _training_job("TFJob", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator")
PYTORCH_JOB: Final = _training_job("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker")
XGBOOST_JOB: Final = _training_job("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker")
PADDLE_JOB: Final = _training_job("PaddleJob", "paddleReplicaSpecs", "Master", "Worker")
JAX_JOB: Final = _training_job("JAXJob", "jaxReplicaSpecs", "Worker", adopts_prebuilt_workload=False)
