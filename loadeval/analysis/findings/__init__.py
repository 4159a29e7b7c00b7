"""What a run says is wrong with its loading, what that rests on, and what to change."""
