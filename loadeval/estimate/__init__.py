"""What a run's figures say, with their intervals."""
