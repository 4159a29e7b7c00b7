"""What is found in a recorded run: a rule is one function with its words."""
