"""What a thread does: every decision, in one transaction each."""
