"""The controller of StatefulSets and LeaderWorkerSets: one Workload for each group of their pods."""
