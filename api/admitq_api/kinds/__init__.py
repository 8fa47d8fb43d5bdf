"""The kinds of the API, one module each. ``admitq_api.crds`` lists them all."""
