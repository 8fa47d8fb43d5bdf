"""Questions about a running admission state, answered beside it: they never change or delay its decisions."""
