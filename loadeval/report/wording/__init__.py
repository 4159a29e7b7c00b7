"""Every sentence that a user reads, made from codes and numbers."""
