"""What is read of the machine beside the batches: its GPUs, its host."""
