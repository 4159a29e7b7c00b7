"""What training would do if its loader were changed, predicted from one recorded run."""
