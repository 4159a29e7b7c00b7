"""What is measured inside of a DataLoader, in its workers and in the training process."""
