"""The benchmark of trust: small problems on which an optimiser with nothing to set may fail."""
