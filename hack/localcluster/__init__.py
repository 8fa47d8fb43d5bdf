"""The real control plane on this machine: built, started, watched and stopped.

kube-apiserver, kube-controller-manager, kube-scheduler, etcd and KWOK run as plain processes on
loopback. `LocalCluster` is the whole interface; `hack/cluster` is its command line.
"""

from localcluster.cluster import LocalCluster
from localcluster.cluster_processes import ClusterError
from localcluster.nodes import NodePool

__all__ = ["ClusterError", "LocalCluster", "NodePool"]
