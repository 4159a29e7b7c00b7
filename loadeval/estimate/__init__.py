"""What data loading costs: real beside ideal loading, with intervals, and the verdict."""
