"""Jobs and their Workloads: made, matched, started, stopped, finished, for every kind alike."""
