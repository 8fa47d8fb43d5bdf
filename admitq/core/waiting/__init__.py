"""How pending workloads wait, and what ends that. Start with ``wait_states``."""
