"""The core makes all decisions. It does no input or output, and reads no clock and no random numbers."""
