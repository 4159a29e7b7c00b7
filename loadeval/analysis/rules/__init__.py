"""What is wrong with a run's data loading, what shows it, and what to change."""
