"""What runs in the training process."""
