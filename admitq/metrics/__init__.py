"""The metrics of admitq: their table, their registry and the values of their gauges."""
