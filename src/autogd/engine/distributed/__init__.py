"""One model on many processes: shards, owners of matrices, and sums over ranks."""
