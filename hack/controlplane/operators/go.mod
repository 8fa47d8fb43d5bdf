// The modules of projects with kinds that admitq works with: their CRDs, manifests and operators. They are
// downloaded and checked against go.sum. An operator is built in a copy of its own module, with the go.mod and
// go.sum of its project, so no module that they require in turn is listed here (and `go mod tidy` must not be run:
// nothing here imports anything).
module admitq.dev/controlplane/operators

go 1.26.0

require (
	github.com/kubeflow/mpi-operator v0.8.0
	github.com/kubeflow/spark-operator/v2 v2.4.0
	github.com/kubeflow/trainer/v2 v2.2.0
	github.com/kubeflow/training-operator v1.9.3
	github.com/project-codeflare/appwrapper v1.2.0
	github.com/ray-project/kuberay/ray-operator v1.6.0
	k8s.io/autoscaler/cluster-autoscaler/apis v0.0.0-20240627115740-d52e4b9665d7
	sigs.k8s.io/jobset v0.11.1
	sigs.k8s.io/lws v0.9.0
)
