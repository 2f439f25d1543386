"""The GPUs themselves: state, faults, clocks, who uses them."""
