"""All operators that can run beside a local cluster."""

from collections.abc import Iterable
from typing import Any, Final

from localcluster.operators import Edit, Operator, Source


class UnknownOperatorError(Exception):
    """There is no operator with this name. The message has the available names."""


def _configuration(group: str) -> dict[str, Any]:
    """Return the configuration file of an operator that uses the usual fields of controller-runtime."""
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": "{webhook}", "certDir": "{certificates}"},
        "health": {"healthProbeBindAddress": "127.0.0.1:{health}"},
        "metrics": {"bindAddress": "127.0.0.1:{metrics}"},
    }


_APPWRAPPER_CONFIGURATION: Final = """controllerManager:
  health:
    bindAddress: 127.0.0.1:{health}
  metrics:
    bindAddress: 127.0.0.1:{metrics}
"""


def _with_given_certificates(file: str, ready: str) -> Edit:
    """Return an edit of an operator that would replace the certificates of its webhooks by its own."""
    rotates = "return cert.AddRotator(mgr, &cert.CertRotator{"
    return Edit(file, rotates, f"close({ready})\n\treturn nil\n\t{rotates}")


_SPARK: Final = Source(
    module="github.com/kubeflow/spark-operator/v2",
    namespace="spark-operator",
    package="cmd/operator",
    chart="charts/spark-operator-chart",
    # All namespaces can have applications.
    chart_values={"spark": {"jobNamespaces": [""]}},
    samples=("examples",),
    edits=(
        # Its webhooks would use the certificate of a Secret, which must have an RSA key.
        Edit(
            "cmd/operator/webhook/start.go",
            "certProvider.SyncSecret(context.TODO(), webhookSecretName, webhookSecretNamespace)",
            "context.Cause(context.TODO())",
        ),
        Edit(
            "cmd/operator/webhook/start.go",
            "err := certProvider.WriteFile(webhookCertDir, webhookCertName, webhookKeyName)",
            "_, err := os.Stat(webhookCertDir)",
        ),
        Edit(
            "cmd/operator/webhook/start.go",
            "Port:     webhookPort,",
            'Port:     webhookPort,\n\t\t\tHost:     "127.0.0.1",',
        ),
        # In a cluster, each operator has a folder /tmp of its own.
        *(
            Edit(
                f"internal/controller/sparkapplication/{file}",
                f'fmt.Sprintf("/tmp/spark/%s{rest}",',
                f'fmt.Sprintf(os.TempDir()+"/spark/%s{rest}",',
            )
            for file, rest in (
                ("submission.go", "/driver-pod-template.yaml"),
                ("submission.go", "/executor-pod-template.yaml"),
                ("controller.go", ""),
            )
        ),
    ),
)

OPERATORS: Final = (
    Operator(
        name="jobset",
        source=Source(
            module="sigs.k8s.io/jobset",
            namespace="jobset-system",
            kustomizations=("config/default",),
            samples=("config/samples",),
        ),
        account="jobset-controller-manager",
        arguments=("--config={config}",),
        configuration={
            **_configuration("config.jobset.x-k8s.io"),
            "internalCertManagement": {"enable": False},
        },
    ),
    Operator(
        name="kuberay",
        source=Source(
            module="github.com/ray-project/kuberay/ray-operator",
            namespace="ray-system",
            kustomizations=("config/default-with-webhooks",),
            samples=("config/samples",),
            edits=(
                Edit(
                    "main.go",
                    "options := ctrl.Options{",
                    "options := ctrl.Options{\n\t\tWebhookServer: webhooksOnLoopback,",
                ),
            ),
            has_port_file=True,
        ),
        account="kuberay-operator",
        arguments=(
            "--metrics-addr=127.0.0.1:{metrics}",
            "--health-probe-bind-address=127.0.0.1:{health}",
            "--enable-leader-election=false",
            # The API server connects to the pods of Ray, as this process has no route to them.
            "--use-kubernetes-proxy",
        ),
        environment={"ENABLE_WEBHOOKS": "true"},
        # Its manifests contain them, but the operator registers that of RayClusters only. Each RayJob would
        # be refused.
        without=("Webhook/vrayjob.kb.io", "Webhook/vrayservice.kb.io"),
        calls_pods=True,
    ),
    Operator(
        name="lws",
        source=Source(
            module="sigs.k8s.io/lws",
            namespace="lws-system",
            package="cmd",
            kustomizations=("config/default",),
            samples=("docs/examples/sample",),
        ),
        account="lws-controller-manager",
        arguments=("--config={config}",),
        configuration={
            **_configuration("config.lws.x-k8s.io"),
            "internalCertManagement": {"enable": False},
        },
    ),
    Operator(
        name="mpi",
        source=Source(
            module="github.com/kubeflow/mpi-operator",
            namespace="mpi-operator",
            package="cmd/mpi-operator",
            kustomizations=("manifests/overlays/standalone",),
            samples=("examples/v2beta1",),
            edits=(
                # The port of its health check is a constant.
                Edit(
                    "cmd/mpi-operator/app/server.go",
                    'fmt.Sprintf(":%d", healthCheckPort)',
                    'os.Getenv("HEALTH_ADDRESS")',
                ),
            ),
        ),
        account="mpi-operator",
        arguments=("--lock-namespace=mpi-operator",),
        environment={"HEALTH_ADDRESS": "127.0.0.1:{health}"},
        has_webhooks=False,
        lease="mpi-operator",
        health_path="/healthz",
    ),
    Operator(
        name="training",
        source=Source(
            module="github.com/kubeflow/training-operator",
            namespace="kubeflow",
            package="cmd/training-operator.v1",
            kustomizations=("manifests/overlays/standalone",),
            samples=("examples",),
            edits=(
                _with_given_certificates("pkg/cert/cert.go", ready="setupFinished"),
                Edit(
                    "cmd/training-operator.v1/main.go",
                    "Port: webhookServerPort,",
                    'Port: webhookServerPort, Host: "127.0.0.1",',
                ),
            ),
        ),
        account="training-operator",
        # The MPI operator has a newer MPIJob.
        without=("CustomResourceDefinition/mpijobs.kubeflow.org",),
        arguments=(
            "--metrics-bind-address=127.0.0.1:{metrics}",
            "--health-probe-bind-address=127.0.0.1:{health}",
            "--webhook-server-port={webhook}",
            *(
                f"--enable-scheme={kind}"
                for kind in ("tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob")
            ),
        ),
    ),
    Operator(
        name="trainer",
        source=Source(
            module="github.com/kubeflow/trainer/v2",
            namespace="kubeflow-system",
            package="cmd/trainer-controller-manager",
            # Its overlay for the manager contains a remote kustomization of JobSet.
            bases=("manifests/base/crds", "manifests/base/rbac", "manifests/base/webhook"),
            kustomizations=("manifests/base/runtimes",),
            samples=("examples",),
        ),
        account="kubeflow-trainer-controller-manager",
        needs=("jobset",),
        arguments=("--config={config}",),
        configuration={
            **_configuration("config.trainer.kubeflow.org"),
            "webhook": {"host": "127.0.0.1", "port": "{webhook}"},
            "certManagement": {"enable": False},
        },
    ),
    Operator(
        name="appwrapper",
        source=Source(
            module="github.com/project-codeflare/appwrapper",
            namespace="appwrapper-system",
            package="cmd",
            kustomizations=("config/default",),
            samples=("samples",),
            edits=(
                Edit("cmd/main.go", "Port:    9443,", 'Port: webhookPort,\n\t\t\tHost: "127.0.0.1",'),
                _with_given_certificates("pkg/controller/setup.go", ready="certsReady"),
            ),
            has_port_file=True,
        ),
        account="appwrapper-controller-manager",
        environment={"NAMESPACE": "appwrapper-system"},
        objects=(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "appwrapper-operator-config", "namespace": "appwrapper-system"},
                "data": {"config.yaml": _APPWRAPPER_CONFIGURATION},
            },
        ),
    ),
    Operator(
        name="spark-webhook",
        source=_SPARK,
        account="spark-operator-webhook",
        arguments=(
            "webhook",
            "start",
            "--webhook-cert-dir={certificates}",
            "--webhook-port={webhook}",
            "--enable-cert-manager",
            "--health-probe-bind-address=127.0.0.1:{health}",
        ),
    ),
    Operator(
        name="spark",
        source=_SPARK,
        account="spark-operator-controller",
        needs=("spark-webhook",),
        arguments=("controller", "start", "--health-probe-bind-address=127.0.0.1:{health}"),
        environment={
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": "{api_port}",
            "SPARK_HOME": "{folder}/spark",
        },
        programs={"spark/bin/spark-submit": "localcluster.played_spark_submit"},
        has_webhooks=False,
    ),
)


def named(name: str) -> Operator:
    """Return an operator by its name.

    Raises:
        UnknownOperatorError: there is none.
    """
    for operator in OPERATORS:
        if operator.name == name:
            return operator
    available = ", ".join(operator.name for operator in OPERATORS)
    raise UnknownOperatorError(f"there is no operator {name!r}; available are: {available}")


def with_needs(names: Iterable[str]) -> list[Operator]:
    """Return operators and those that they need, each after the ones that it needs.

    Raises:
        UnknownOperatorError: a name is unknown.
    """
    found: dict[str, Operator] = {}
    for name in names:
        operator = named(name)
        found |= {each.name: each for each in with_needs(operator.needs)}
        found[name] = operator
    return list(found.values())
