"""Controllers: one for each status that admitq owns."""
