"""The desk: where dead letters are looked at, told apart by cause, and sent back."""
