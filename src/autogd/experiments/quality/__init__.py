"""The benchmark of training quality: fixed workloads, tuned rivals, and AGD with nothing to set."""
