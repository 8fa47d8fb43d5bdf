"""The decision core: values in, values out, no I/O, no clock, no randomness."""
