// The modules of projects with kinds that admitq works with, as far as tests need them: the CRDs of
// those kinds. They are downloaded and checked against go.sum; nothing of them is compiled, so that no module
// that they require in turn is needed (and `go mod tidy` must not be run: nothing here imports anything).
module admitq.dev/controlplane/crds

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
