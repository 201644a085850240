"""The benchmark of training quality: fixed workloads, tuned rivals, nothing to set for ours."""
