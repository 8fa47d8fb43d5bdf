"""A real control plane on this machine.

kube-apiserver, kube-controller-manager, kube-scheduler, etcd and KWOK run as plain processes on loopback.
`LocalCluster` is the interface in Python, and `hack/cluster` the command line.
"""

from localcluster.cluster import LocalCluster
from localcluster.cluster_processes import ClusterError
from localcluster.nodes import NodePool

__all__ = ["ClusterError", "LocalCluster", "NodePool"]
