"""Objects that serve: Workloads made for the groups of pods that they make, and the pods told of them."""
